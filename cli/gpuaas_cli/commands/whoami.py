"""`gpuaas whoami`."""

import typer
from gpuaas_contract.identity import ME, Me

from gpuaas_cli import failures, output
from gpuaas_cli.client import home, session
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run

app = run.command_group()

_COLUMNS = (
    Column("NAME", lambda me: me.name),
    Column("TYPE", lambda me: me.actor_type),
    Column("ID", lambda me: me.actor_id),
    Column("ROLES", lambda me: ",".join(f"{binding.role}@{binding.scope}" for binding in me.bindings)),
)


@run.command(app)
def whoami(context: typer.Context) -> int:
    """Who you are, and with which roles.

    Example: gpuaas whoami -o json
    """
    flags = run.flags_of(context)
    me, target = session.run(flags, _ask)
    output.show_one(flags, me, _COLUMNS, lambda one: str(one.name))
    output.talk(f"context {target.context or '-'}, server {target.server}, project {target.project or '-'}")
    return failures.OK


async def _ask(opened: session.Session) -> tuple[Me, home.Target]:
    return await opened.call(ME), opened.target
