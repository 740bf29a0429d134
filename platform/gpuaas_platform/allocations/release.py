"""Release allocations: on request, despite use, or by force; and retry until the node has been cleaned."""

import datetime

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation, OverrideRelease
from gpuaas_contract.paths import AllocationPath
from gpuaas_contract.wire import NoBody

from gpuaas_platform.allocations import rules, service, store
from gpuaas_platform.allocations.facts import ReleaseStarted
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes.tasks import service as tasks

TASK = "allocation.release"


async def release(tx: db.Tx, call: Call[AllocationPath], _: NoBody) -> Allocation:
    """Release the allocation that the path names. A repeat after a failed release starts the next attempt at once."""
    allocation = await service.get(tx, call)
    if allocation.status in ("releasing", "released"):
        return allocation
    rules.check_unused(allocation)
    return await _start(tx, call.site, call.origin, allocation)


async def release_used(tx: db.Tx, call: Call[AllocationPath], body: OverrideRelease) -> Allocation:
    """Release an allocation that instances use. Their members lose the machine; the owners see the reason."""
    allocation = await service.get(tx, call)
    call.details.update(reason=body.reason, instance_ids=allocation.used_by_instance_ids)
    if allocation.status in ("releasing", "released"):
        return allocation
    return await _start(tx, call.site, call.origin, allocation, body.reason)


async def force_release(tx: db.Tx, call: Call[AllocationPath], body: OverrideRelease) -> Allocation:
    """Mark an allocation as released although its release failed, and cordon the node until an operator has checked it.

    The cleaning task is still sent to the node until it succeeds. The node's report is saved as evidence.
    """
    allocation = await service.get(tx, call)
    call.details["reason"] = body.reason
    given_up = await service.save(tx, call.origin, allocation, rules.given_up(allocation, body.reason))
    await nodes.unassign(tx, given_up.node_id, given_up.allocation_id, call.now)
    node = await nodes.by_id(tx, given_up.node_id)
    if node is None:
        raise errors.NotFound
    if node.admin_state == "active":  # a draining or cordoned node keeps its state
        why = f"{given_up.allocation_id} was given up before it was cleaned: {body.reason}"
        await nodes.set_admin_state(tx, call.origin, node, "cordoned", why)
    return await _start(tx, call.site, call.origin, given_up)


async def is_retry_due(reader: db.Reader, now: datetime.datetime) -> bool:
    """Return whether a failed release must be retried now, so that `retry_due` has something to write."""
    return bool(await store.due(reader, "release_retry_at", now))


async def retry_due(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Start the next cleaning attempt for each allocation whose pause is over and whose node is ready."""
    for allocation in await store.due(tx, "release_retry_at", origin.now):
        retrying = system_origin(origin.now, allocation.correlation_id)
        await _start(tx, site, retrying, allocation)


async def _start(tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, reason: str = "") -> Allocation:
    params = {"allocation_id": allocation.allocation_id, "user": allocation.username_on_node}
    await site.reactions.react(tx, ReleaseStarted(origin, allocation))
    about = (allocation.node_id, TASK, allocation.allocation_id)
    await tasks.queue(tx, site, origin, *about, params, project_id=allocation.project_id)
    return await service.save(tx, origin, allocation, rules.releasing(allocation, reason))
