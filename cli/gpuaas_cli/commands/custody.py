"""`gpuaas custody`: where secrets are kept, and whether the server can open them."""

import typer
from gpuaas_contract.custody import CUSTODY_GET, UNSEAL, CustodyStatus, Unseal

from gpuaas_cli import failures, output
from gpuaas_cli.client import session
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import ask
from gpuaas_cli.output import Column
from gpuaas_cli.runner import run

app = run.command_group()

_COLUMNS = (
    Column("STORE", lambda one: one.store),
    Column("STATE", lambda one: state(one)),
    Column("KEY", lambda one: one.key),
)


@app.callback()
def custody() -> None:
    """A sealed server keeps no secret and reads none until somebody gives it the passphrase of its key."""


@run.command(app)
def status(context: typer.Context) -> int:
    """Where secrets are kept, and whether this server can open them.

    Example: gpuaas custody status
    """
    flags = run.flags_of(context)
    found = session.run(flags, lambda opened: opened.call(CUSTODY_GET))
    _show(flags, found)
    if found.sealed:
        output.talk(f"  next: {next_command(found)}")
    return failures.OK


@run.command(app)
def unseal(context: typer.Context) -> int:
    """Give this server the passphrase of its key. It is asked for, or read from stdin, and kept in memory only.

    Example: gpuaas custody unseal < passphrase
    """
    flags = run.flags_of(context)
    body = Unseal(passphrase=ask.secret(flags, "Passphrase", "gpuaas custody unseal"))
    _show(flags, session.run(flags, lambda opened: opened.call(UNSEAL, body)))
    return failures.OK


def state(found: CustodyStatus) -> str:
    if found.refused:
        return "refused"
    return "sealed" if found.sealed else "open"


def next_command(found: CustodyStatus) -> str:
    """Of one that is not open."""
    return found.fix or "gpuaas custody unseal"


def _show(flags: Flags, found: CustodyStatus) -> None:
    output.show_one(flags, found, _COLUMNS, state)
