"""`gpuaas op`: watch operations, and take a way out of those that do not go on."""

import asyncio
from typing import Annotated

import typer
from gpuaas_contract.lifecycles import OperationStatus
from gpuaas_contract.operations import (
    EXITS,
    OPERATION_FORCE_COMPLETE,
    OPERATION_TOMBSTONE,
    ExitName,
    GiveUpMembers,
    Operation,
    TakeExit,
)

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, NeededReason, OperationId, words
from gpuaas_cli.work import follow

app = run.command_group()


@app.callback()
def operations() -> None:
    """Every long change is an operation; watching it never changes it, and each way out needs a reason."""


@run.command(app, "follow")
def follow_operation(context: typer.Context, operation: OperationId) -> int:
    """Show the steps as they happen, until the operation ends. Ctrl-C detaches.

    Example: gpuaas op follow op_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    return session.run(run.flags_of(context), lambda opened: follow.to_the_end(opened, operation))


@run.command(app)
def wait(
    context: typer.Context,
    operation: OperationId,
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds; 0 waits until it ends.")] = 0,
) -> int:
    """Wait for any end: 0 succeeded, 1 failed or cancelled, 2 not ended in time.

    Example: gpuaas op wait op_01k9z0c5p3v2m8q7r6t5w4x3y2 --timeout 600
    """
    return session.run(run.flags_of(context), lambda opened: _wait(opened, operation, timeout_s))


def _working_exit(name: ExitName, wanted: OperationStatus, meaning: str, why: str) -> None:
    """A way out on which a controller works, so there is something to follow; `wanted` is its good end."""

    @run.command(app, name, help=f"{meaning}\n\n{_example(name, why)}")
    def take(context: typer.Context, operation: OperationId, reason: NeededReason, detach: Detach = False) -> int:
        async def work(opened: session.Session) -> int:
            taken = await opened.call(EXITS[name], TakeExit(reason=reason), operation_id=operation)
            return await follow.started(opened, taken, detach=detach, wanted=wanted)

        return session.run(run.flags_of(context), work)


def _example(name: str, why: str) -> str:
    return f'Example: gpuaas op {name} op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "{why}"'


_working_exit(
    "retry",
    "succeeded",
    "Take a failed operation up again; steps that succeeded are not repeated.",
    "the network is back",
)
_working_exit(
    "cancel",
    "cancelled",
    "Stop an operation and have it undone; one that nobody took up yet ends at once.",
    "wrong machine",
)
_working_exit(
    "compensate",
    "cancelled",
    "Have the half-done work of a failed operation undone.",
    "give the machines back",
)


@run.command(app, "force-complete")
def force_complete(context: typer.Context, operation: OperationId, reason: NeededReason) -> int:
    """Declare an operation done that no controller can finish. Nothing is done on any machine.

    Example: gpuaas op force-complete op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "checked by hand: the machine is empty"
    """
    flags = run.flags_of(context)
    body = TakeExit(reason=reason)
    ended = session.run(flags, lambda opened: opened.call(OPERATION_FORCE_COMPLETE, body, operation_id=operation))
    kinds.show_one(flags, "operations", ended)
    return failures.OK


@run.command(app)
def tombstone(
    context: typer.Context,
    operation: OperationId,
    reason: NeededReason,
    members: Annotated[
        list[str] | None,
        typer.Option("--member", metavar="MEMBER|NODE", help="Only these; else every member that failed. Repeatable."),
    ] = None,
) -> int:
    """Give up members of a failed operation that cannot be recovered.

    Example: gpuaas op tombstone op_01k9z0c5p3v2m8q7r6t5w4x3y2 --reason "the machine burnt down"
    """
    flags = run.flags_of(context)
    left = session.run(flags, lambda opened: _give_up(opened, operation, reason, words(members or [])))
    kinds.show_one(flags, "operations", left)
    return failures.OK


async def _give_up(opened: session.Session, operation_id: str, reason: str, named: list[str]) -> Operation:
    found = await lookup.operation(opened, operation_id)
    targets = {target.member_id for target in found.targets}
    members = [one for one in await lookup.all_members(opened, found.instance_id) if one.member_id in targets]
    chosen = [one.member_id for one in lookup.pick_members(members, named)]
    body = GiveUpMembers(reason=reason, member_ids=chosen)
    return await opened.call(OPERATION_TOMBSTONE, body, operation_id=operation_id)


async def _wait(opened: session.Session, operation_id: str, timeout_s: float) -> int:
    waiting = asyncio.ensure_future(follow.to_the_end(opened, operation_id, quiet=True))
    done, _ = await asyncio.wait({waiting}, timeout=timeout_s or None)
    if done:
        return waiting.result()
    raise failures.Failure(
        f"{operation_id} has not ended within {timeout_s:g} s; it goes on",
        fix=f"gpuaas op follow {operation_id}",
        code="timeout",
        exit_code=failures.SERVER,
    )
