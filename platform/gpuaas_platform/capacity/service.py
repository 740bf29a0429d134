"""Allocations: claim a node for a project, have its agent prepare it, give it back."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation, CreateAllocation
from gpuaas_contract.event_types import AllocationChanged
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.node import TaskResult

from gpuaas_platform.call import Call, Origin, Site
from gpuaas_platform.capacity import nodes, rules, store
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record


async def create(tx: db.Tx, call: Call, wanted: CreateAllocation) -> Allocation:
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    rules.check_policy(layers, wanted, await store.unreleased_count(tx, project.project_id))
    node = rules.choose_node(await store.NODES.find(tx, "1 = 1 ORDER BY name"), wanted, layers)
    allocation_id = ids.new("alloc")
    allocation = Allocation(
        allocation_id=allocation_id,
        org_id=project.org_id,
        project_id=project.project_id,
        status="provisioning",
        status_reason="",
        node_id=node.node_id,
        node_name=node.name,
        address=node.address,
        sku=node.sku,
        region=node.region,
        gpus=len(node.facts.gpus),
        username_on_node=rules.username(allocation_id),
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        used_by_instance_ids=[],
        created_at=call.now,
        updated_at=call.now,
    )
    await store.ALLOCATIONS.insert(tx, allocation)
    await store.NODES.save(tx, msgspec.structs.replace(node, allocation_id=allocation_id))
    params: dict[str, object] = {
        "allocation_id": allocation_id,
        "user": allocation.username_on_node,
        "principal": allocation_id,
        "user_ca_public_keys": [call.site.keys.ssh_authority_public()],
    }
    await nodes.queue_task(tx, call.site, call.origin, node.node_id, "allocation.provision", allocation_id, params)
    await _tell(tx, call.origin, allocation)
    return allocation


async def release(tx: db.Tx, call: Call, allocation_id: str) -> Allocation:
    allocation = await in_project(tx, call.in_project().project_id, allocation_id)
    if allocation.status in ("releasing", "released"):
        return allocation
    rules.may_release(allocation)
    releasing = rules.move(allocation, "releasing")
    await _save(tx, call.origin, releasing)
    params: dict[str, object] = {"allocation_id": allocation_id, "user": allocation.username_on_node}
    await nodes.queue_task(tx, call.site, call.origin, allocation.node_id, "allocation.release", allocation_id, params)
    return releasing


async def task_ended(tx: db.Tx, call: Call, task_id: str, body: TaskResult) -> None:
    """Exactly once: a result for a task that has ended already changes nothing."""
    task = await store.task(tx, task_id)
    if task is None or task["node_id"] != call.caller.actor_id:
        raise errors.NotFound
    if task["state"] != "queued":
        return
    await store.end_task(tx, task_id, body.status, msgspec.json.encode(body).decode())
    await nodes.note_host_key(tx, task["node_id"], body.result)
    reason = f"{body.error.code}: {body.error.message}" if body.error else ""
    await _apply(tx, call.origin, task["type"], task["subject_id"], body.status == "succeeded", reason)


async def expire_tasks(tx: db.Tx, site: Site, origin: Origin) -> None:
    for task in await store.expired_tasks(tx, clock.micros(origin.now)):
        await store.end_task(tx, task["task_id"], "expired", "")
        reason = f"the node did not answer within {site.settings.task_ttl_s} s"
        await _apply(tx, origin, task["type"], task["subject_id"], False, reason)


async def in_project(reader: db.Reader, project_id: str, allocation_id: str) -> Allocation:
    allocation = await store.ALLOCATIONS.get(reader, allocation_id)
    if allocation is None or allocation.project_id != project_id:
        raise errors.NotFound(f"There is no allocation {allocation_id} in this project.")
    return allocation


async def host_public_key(reader: db.Reader, allocation: Allocation) -> str:
    node = await store.NODES.get(reader, allocation.node_id)
    if node is None:
        raise errors.NotFound
    return node.ssh_host_public_key


async def set_used(tx: db.Tx, allocation: Allocation, instance_id: str, used: bool) -> None:
    """Called by the domain that binds members to allocations; a used allocation cannot be released."""
    others = [found for found in allocation.used_by_instance_ids if found != instance_id]
    users = [*others, instance_id] if used else others
    await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, used_by_instance_ids=users))


async def _apply(tx: db.Tx, origin: Origin, task_type: str, allocation_id: str, succeeded: bool, reason: str) -> None:
    allocation = await store.ALLOCATIONS.get(tx, allocation_id)
    if allocation is None:
        return
    status: AllocationStatus = rules.after_task(task_type, succeeded)
    await _save(tx, origin, rules.move(allocation, status, reason))
    if status == "released":
        node = await store.NODES.get(tx, allocation.node_id)
        if node is not None and node.allocation_id == allocation_id:
            await store.NODES.save(tx, msgspec.structs.replace(node, allocation_id=None))


async def _save(tx: db.Tx, origin: Origin, allocation: Allocation) -> None:
    await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, updated_at=origin.now))
    await _tell(tx, origin, allocation)


async def _tell(tx: db.Tx, origin: Origin, allocation: Allocation) -> None:
    await record.emit(
        tx,
        origin,
        "capacity.allocation.changed",
        AllocationChanged(
            allocation_id=allocation.allocation_id,
            status=allocation.status,
            status_reason=allocation.status_reason,
            node_name=allocation.node_name,
        ),
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        correlation_id=allocation.correlation_id,
    )
