"""What a node's answer, or its silence, means for the allocation or placement the task was about."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.node import FETCH_TASK, TaskError, TaskResult

from gpuaas_platform.allocations import changes as allocation_changes
from gpuaas_platform.allocations import release as allocation_release
from gpuaas_platform.allocations import rules, store
from gpuaas_platform.allocations.keys import service as allocation_keys
from gpuaas_platform.artifacts import placements
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import ssh_trust


async def task_ended(tx: db.Tx, call: Call, task_id: str, body: TaskResult) -> None:
    """Exactly once: a result for a task that has ended already changes nothing."""
    task = await store.task(tx, task_id)
    if task is None or task["node_id"] != call.caller.actor_id:
        raise errors.NotFound
    if task["state"] != "queued":
        return
    await store.end_task(tx, task_id, body.status, msgspec.json.encode(body).decode())
    await nodes.note_host_key(tx, task["node_id"], body.result)
    await _apply(tx, call.origin, task, body)


async def expire_tasks(tx: db.Tx, origin: Origin) -> None:
    for task in await store.expired_tasks(tx, clock.micros(origin.now)):
        await store.end_task(tx, task["task_id"], "expired", "")
        silence = TaskError(code="no_answer", message="the node did not answer in time")
        await _apply(tx, origin, task, TaskResult(status="failed", error=silence))


async def _apply(tx: db.Tx, origin: Origin, task: db.Row, result: TaskResult) -> None:
    if task["type"] == FETCH_TASK:
        await placements.ended(tx, origin, task["subject_id"], result)
        return
    allocation = await store.ALLOCATIONS.get(tx, task["subject_id"])
    if allocation is None:
        return
    if task["type"] == allocation_keys.TASK:
        await allocation_keys.told(tx, origin, allocation, task["task_id"], _why(result))
        return
    after = _after(task["type"], allocation, result, origin)
    await allocation_changes.save(tx, origin, allocation, after)
    if allocation.provision_retry_at is not None and after.status == "active":
        await ssh_trust.tell_again(tx, after.node_id, origin.now)
    if after.status == "released":
        await allocation_release.let_go(tx, after)


def _after(task_type: str, allocation: Allocation, result: TaskResult, origin: Origin) -> Allocation:
    error = _why(result)
    if task_type == "allocation.provision":
        return rules.provisioned(allocation, error, origin.now)
    return rules.cleaned(allocation, error, rules.evidence(result, origin.now), origin.now)


def _why(result: TaskResult) -> str:
    if result.status == "succeeded":
        return ""
    return f"{result.error.code}: {result.error.message}" if result.error else result.status
