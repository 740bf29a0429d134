"""`gpuaas allocation`: claim nodes for a project, give them back."""

import asyncio
import time
from typing import Annotated

import typer
from gpuaas_contract.capacity import (
    ALLOCATION_CREATE,
    ALLOCATION_GET,
    ALLOCATION_RELEASE,
    Allocation,
    CreateAllocation,
)

from gpuaas_cli import failures, kinds, lookup, running, session

app = running.command_group()

POLL_S = 0.5
WAIT_S = 180.0
SETTLED = frozenset({"active", "failed", "released", "release_failed"})

Wait = Annotated[bool, typer.Option("--wait", help="Return when it is done.")]


@app.callback()
def allocation() -> None:
    """An allocation is a project's claim on a node."""


@running.command(app)
def create(
    context: typer.Context,
    node: Annotated[str, typer.Option(help="This node; else any free one that fits.")] = "",
    sku: Annotated[str, typer.Option(help="A node sold as this.")] = "",
    count: Annotated[int, typer.Option(min=1, max=100, help="How many.")] = 1,
    wait: Wait = False,
) -> int:
    """Claim nodes.

    Example: gpuaas allocation create --count 3 --wait
    """
    if node and count > 1:
        raise failures.usage(
            "--node names one node, so --count cannot be more than 1", "gpuaas allocation create --help"
        )
    flags = running.flags_of(context)
    body = CreateAllocation(node_name=node, sku=sku)
    made = session.run(flags, lambda opened: _create(opened, body, count, wait=wait))
    kinds.show_list(flags, "allocations", made)
    return _verdict(made, "active") if wait else failures.OK


@running.command(app)
def release(
    context: typer.Context, allocation: Annotated[str, typer.Argument(metavar="ALLOCATION|NODE")], wait: Wait = False
) -> int:
    """Give a node back. ALLOCATION is an id, or the name of the node.

    Example: gpuaas allocation release gpu-3
    """
    flags = running.flags_of(context)
    released = session.run(flags, lambda opened: _release(opened, allocation, wait=wait))
    kinds.show_one(flags, "allocations", released)
    return _verdict([released], "released") if wait else failures.OK


async def settled(opened: session.Session, allocation_id: str, *, timeout_s: float = WAIT_S) -> Allocation:
    """The allocation once nothing moves it any more."""
    ends_at = time.monotonic() + timeout_s
    while True:
        found = await opened.call(ALLOCATION_GET, allocation_id=allocation_id)
        if found.status in SETTLED:
            return found
        if time.monotonic() >= ends_at:
            raise failures.Failure(
                f"{allocation_id} is still {found.status} after {timeout_s:g} s",
                fix=f"gpuaas get allocation {allocation_id}",
                code="timeout",
                exit_code=failures.SERVER,
            )
        await asyncio.sleep(POLL_S)


async def _create(opened: session.Session, body: CreateAllocation, count: int, *, wait: bool) -> list[Allocation]:
    made = [await opened.call(ALLOCATION_CREATE, body) for _ in range(count)]
    return [await settled(opened, one.allocation_id) for one in made] if wait else made


async def _release(opened: session.Session, named: str, *, wait: bool) -> Allocation:
    found = await lookup.active_allocation(opened, named)
    released = await opened.call(ALLOCATION_RELEASE, allocation_id=found.allocation_id)
    return await settled(opened, released.allocation_id) if wait else released


def _verdict(allocations: list[Allocation], wanted: str) -> int:
    return failures.OK if all(one.status == wanted for one in allocations) else failures.FAILED
