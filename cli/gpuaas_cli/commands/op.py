"""`gpuaas op`: watch operations."""

import asyncio
from typing import Annotated

import typer

from gpuaas_cli import failures, follow, running, session

app = running.command_group()


@app.callback()
def operations() -> None:
    """Every long change is an operation; watching it never changes it."""


@running.command(app, "follow")
def follow_operation(context: typer.Context, operation: Annotated[str, typer.Argument(metavar="OPERATION")]) -> int:
    """Show the steps as they happen, until the operation ends. Ctrl-C detaches.

    Example: gpuaas op follow op_01k9z0c5p3v2m8q7r6t5w4x3y2
    """
    return session.run(running.flags_of(context), lambda opened: follow.to_the_end(opened, operation))


@running.command(app)
def wait(
    context: typer.Context,
    operation: Annotated[str, typer.Argument(metavar="OPERATION")],
    timeout_s: Annotated[float, typer.Option("--timeout", min=0, help="Seconds; 0 waits until it ends.")] = 0,
) -> int:
    """Wait for any end: 0 succeeded, 1 failed or cancelled, 2 not ended in time.

    Example: gpuaas op wait op_01k9z0c5p3v2m8q7r6t5w4x3y2 --timeout 600
    """
    return session.run(running.flags_of(context), lambda opened: _wait(opened, operation, timeout_s))


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
