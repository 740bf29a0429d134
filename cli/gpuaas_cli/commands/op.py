"""`gpuaas op`: watch operations, and take an exit from those that stopped.

gpuaas op
    Every long change is an operation; watching it never changes it, and each exit needs a reason.
gpuaas op retry op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the network is back"
    Take a failed operation up again; steps that succeeded are not repeated.
gpuaas op cancel op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "wrong machine"
    Stop an operation and have it undone; one that no controller took up yet ends at once.
gpuaas op compensate op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "give the machines back"
    Have the half-done work of a failed operation undone.
gpuaas op force-complete op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "checked by hand: the machine is empty"
    Declare an operation done that no controller can finish. Nothing is done on any machine.
gpuaas op tombstone op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the machine burnt down"
    Give up members of a failed operation that cannot be recovered.
    --reason
    member_ids --member MEMBER|NODE: Only these, by id, node or node/role; else every member that failed.
        Repeatable.
"""

import asyncio
from typing import Annotated

import typer
from gpuaas_contract.operations import EXITS, OPERATION_GET

from gpuaas_cli import failures
from gpuaas_cli.client import session
from gpuaas_cli.runner import Command, run
from gpuaas_cli.work import follow

app = run.group("op", __doc__)

OperationId = Annotated[str, typer.Argument(metavar="OPERATION")]


@run.by_hand(app, "follow", reaches=(OPERATION_GET,))
def follow_operation(context: typer.Context, operation: OperationId) -> int:
    """Show the steps as they happen, until the operation ends. Ctrl-C detaches.

    Example: gpuaas op follow op_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    return session.run(run.flags_of(context), lambda connection: follow.to_the_end(connection, operation))


@run.by_hand(app, reaches=(OPERATION_GET,))
def wait(
    context: typer.Context,
    operation: OperationId,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds; 0 waits until it ends.")] = 0,
) -> int:
    """Wait for any end: 0 succeeded, 1 failed or cancelled, 2 not ended in time.

    Example: gpuaas op wait op_01k9z0c5p3v2m8q7r6t5w4x3y2 --timeout 600
    """
    return session.run(run.flags_of(context), lambda connection: _wait(connection, operation, timeout_s))


run.declare(
    app,
    "op",
    __doc__,
    retry=EXITS["retry"],
    cancel=Command(EXITS["cancel"], wanted="cancelled"),
    compensate=Command(EXITS["compensate"], wanted="cancelled"),
    force_complete=Command(EXITS["force_complete"], follows=False),
    tombstone=Command(EXITS["tombstone"], follows=False),
)


async def _wait(connection: session.Session, operation_id: str, timeout_s: float) -> int:
    waiting = asyncio.ensure_future(follow.to_the_end(connection, operation_id, quiet=True))
    done, _ = await asyncio.wait({waiting}, timeout=timeout_s or None)
    if done:
        return waiting.result()
    message = f"{operation_id} has not ended within {timeout_s:g} s; it continues in the background"
    raise failures.timeout(message, f"gpuaas op follow {operation_id}")
