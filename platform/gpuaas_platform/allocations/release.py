"""Give nodes back: asked for, against the users' use, given up, and tried again until the node has been cleaned."""

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation

from gpuaas_platform.allocations import changes as allocation_changes
from gpuaas_platform.allocations import rules, service, store
from gpuaas_platform.artifacts import placements
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.nodes import admin as node_admin
from gpuaas_platform.nodes import service as nodes

_TASK = "allocation.release"


async def release(tx: db.Tx, call: Call, allocation_id: str) -> Allocation:
    """Asked again after a failure, it does not wait for its time."""
    allocation = await service.in_project(tx, call.in_project().project_id, allocation_id)
    if allocation.status in ("releasing", "released"):
        return allocation
    rules.check_unused(allocation)
    return await _begin(tx, call.site, call.origin, allocation)


async def release_used(tx: db.Tx, call: Call, allocation_id: str, reason: str) -> Allocation:
    """The instances that use it find their members' machine gone; the reason is theirs to read."""
    allocation = await service.in_project(tx, call.in_project().project_id, allocation_id)
    call.details.update(reason=reason, instance_ids=allocation.used_by_instance_ids)
    if allocation.status in ("releasing", "released"):
        return allocation
    return await _begin(tx, call.site, call.origin, allocation, reason)


async def force_release(tx: db.Tx, call: Call, allocation_id: str, reason: str) -> Allocation:
    """The project is rid of it, and nobody else gets the node before an operator has looked at it.

    The node is told to clean up all the same, again and again: what its agent then says is kept as evidence.
    """
    allocation = await service.in_project(tx, call.in_project().project_id, allocation_id)
    call.details["reason"] = reason
    given_up = await allocation_changes.save(tx, call.origin, allocation, rules.given_up(allocation, reason))
    await let_go(tx, given_up)
    await _cordon(tx, call.origin, given_up, reason)
    return await _begin(tx, call.site, call.origin, given_up)


async def retry_due(tx: db.Tx, site: Site, origin: Origin) -> None:
    """A node that is heard again is cleaned without anybody asking."""
    for allocation in await store.releases_due(tx, clock.micros(origin.now)):
        retrying = system_origin(origin.now, allocation.correlation_id)
        await _begin(tx, site, retrying, allocation)


async def let_go(tx: db.Tx, allocation: Allocation) -> None:
    node = await store.NODES.get(tx, allocation.node_id)
    if node is not None:
        await store.NODES.save(tx, rules.without_allocation(node, allocation.allocation_id))


async def _begin(tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, reason: str = "") -> Allocation:
    params: dict[str, object] = {"allocation_id": allocation.allocation_id, "user": allocation.username_on_node}
    for placement in await placements.call_off(tx, origin, allocation.allocation_id):
        await store.withdraw_task(tx, allocation.node_id, placement.placement_id)
    await nodes.queue_task(tx, site, origin, allocation.node_id, _TASK, allocation.allocation_id, params)
    return await allocation_changes.save(tx, origin, allocation, rules.releasing(allocation, reason))


async def _cordon(tx: db.Tx, origin: Origin, allocation: Allocation, reason: str) -> None:
    """One that operators empty or keep back already stays as they want it."""
    node = await store.NODES.get(tx, allocation.node_id)
    if node is None:
        raise errors.NotFound
    if node.admin_state == "active":
        why = f"{allocation.allocation_id} was given up before it was cleaned: {reason}"
        await node_admin.set_admin_state(tx, origin, node.node_id, "cordoned", why)
