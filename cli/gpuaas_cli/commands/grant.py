"""`gpuaas grant`: who may enter machines right now, and the end of it."""

from typing import Annotated

import typer
from gpuaas_contract.access import GRANT_LIST, GRANT_REVOKE, MachineGrant, RevokeGrant

from gpuaas_cli import failures, kinds, output
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import NeededReason

app = run.command_group()


@app.callback()
def grant() -> None:
    """A grant is a certificate for one machine, one source address and some minutes."""


@run.command(app, "list")
def list_grants(
    context: typer.Context,
    allocation: Annotated[str, typer.Option(metavar="ALLOCATION|NODE", help="Only for this machine.")] = "",
    operation: Annotated[str, typer.Option(metavar="OPERATION", help="Only for this operation.")] = "",
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that ended.")] = False,
) -> int:
    """Who may enter the project's machines.

    Example: gpuaas grant list --allocation gpu-3
    """

    async def work(opened: session.Session) -> list[MachineGrant]:
        query = {"operation_id": operation}
        if not everything:
            query["state"] = "active"
        if allocation:
            query["allocation_id"] = (await lookup.live_allocation(opened, allocation)).allocation_id
        return await opened.every(GRANT_LIST, query=query)

    flags = run.flags_of(context)
    kinds.show_list(flags, "grants", session.run(flags, work))
    return failures.OK


@run.command(app)
def revoke(
    context: typer.Context,
    grant: Annotated[str, typer.Argument(metavar="GRANT", help="Its id.")],
    reason: NeededReason,
) -> int:
    """End a grant: its certificate is refused, and live sessions are cut within seconds.

    Example: gpuaas grant revoke grant_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "laptop stolen"
    """
    flags = run.flags_of(context)
    ended = session.run(flags, lambda opened: opened.call(GRANT_REVOKE, RevokeGrant(reason=reason), grant_id=grant))
    kinds.show_one(flags, "grants", ended)
    if ended.enforced_at is None:
        output.talk(f"{ended.node_name} is being told; gpuaas get grant {grant} -o json says when it has the end.")
    return failures.OK
