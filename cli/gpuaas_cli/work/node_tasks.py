"""Give nodes tasks and wait for their ends, which always come: a task no node takes expires."""

from collections.abc import Sequence

from gpuaas_contract.agents import NODE_TASK_GET, NodeTask
from gpuaas_contract.capacity import Node

from gpuaas_cli import failures
from gpuaas_cli.client.session import READ_S, Session
from gpuaas_cli.show import states
from gpuaas_cli.work import spinner

WAIT_S = 25.0


async def ended(session: Session, task: NodeTask) -> NodeTask:
    while task.state == "queued":
        task = await session.call(
            NODE_TASK_GET,
            query={"wait_s": WAIT_S},
            timeout_s=WAIT_S + READ_S,
            node_id=task.node_id,
            task_id=task.task_id,
        )
    return task


async def all_ended(session: Session, tasks: Sequence[NodeTask], nodes: Sequence[Node]) -> list[NodeTask]:
    """In the order of the nodes; each was asked before the first is waited for."""
    result = []
    for task, node in zip(tasks, nodes, strict=True):
        with spinner.shown(f"waiting for {node.name}: {task.type}"):
            result.append(await ended(session, task))
    return result


def failure(task: NodeTask, node: Node) -> failures.Failure:
    return failures.Failure(
        f"{node.name}: {states.why_not(task)}",
        fix=f"gpuaas node task describe {node.name} {task.task_id}",
        code=task.error.code if task.error else f"task_{task.state}",
        correlation_id=task.correlation_id,
    )
