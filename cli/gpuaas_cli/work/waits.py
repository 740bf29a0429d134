"""Wait for tasks of nodes and for allocations. Every task ends, because a task that no node fetches expires."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

from gpuaas_contract.agents import NODE_TASK_GET, NodeTask
from gpuaas_contract.capacity import ALLOCATION_GET, Allocation, Node

from gpuaas_cli import failures
from gpuaas_cli.client.session import READ_S, Session
from gpuaas_cli.show import machines
from gpuaas_cli.work import follow

TASK_S = 25.0
POLL_S = 0.5
ALLOCATION_S = 180.0
SETTLED = frozenset({"active", "failed", "released", "release_failed"})


async def ended(session: Session, task: NodeTask) -> NodeTask:
    while task.state == "queued":
        query, timeout_s = {"wait_s": TASK_S}, TASK_S + READ_S
        task = await session.call(
            NODE_TASK_GET, query=query, timeout_s=timeout_s, node_id=task.node_id, task_id=task.task_id
        )
    return task


async def all_ended(session: Session, tasks: Sequence[NodeTask], nodes: Sequence[Node]) -> list[NodeTask]:
    """Wait for tasks that were created for all nodes before; return them in the order of the nodes."""
    result = []
    for task, node in zip(tasks, nodes, strict=True):
        with follow.waiting(f"waiting for {node.name}: {task.type}"):
            result.append(await ended(session, task))
    return result


def failure(task: NodeTask, node: Node) -> failures.Failure:
    return failures.Failure(
        f"{node.name}: {machines.why_not(task)}",
        fix=f"gpuaas node task describe {node.name} {task.task_id}",
        code=task.error.code if task.error else f"task_{task.state}",
        correlation_id=task.correlation_id,
    )


async def settled(session: Session, allocation_id: str) -> Allocation:
    """Wait until the allocation is active, released or failed, and return it."""
    async for _ in attempts(ALLOCATION_S):
        allocation = await session.call(ALLOCATION_GET, allocation_id=allocation_id)
        if allocation.status in SETTLED:
            return allocation
    message = f"{allocation_id} is still {allocation.status} after {ALLOCATION_S:g} s"
    raise failures.timeout(message, f"gpuaas get allocation {allocation_id}")


async def attempts(within_s: float, pause_s: float = POLL_S) -> AsyncIterator[float]:
    """Yield the remaining seconds, first immediately and then after each pause, until the time is over."""
    ends_at = time.monotonic() + within_s
    while (left_s := ends_at - time.monotonic()) > 0:
        yield left_s
        await asyncio.sleep(pause_s)
