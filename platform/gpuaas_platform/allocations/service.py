"""Allocations: claim nodes for a project and queue the tasks that prepare them. `release` ends allocations."""

import datetime
from collections.abc import Iterable, Sequence

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation, AllocationQuery, Allocations, CreateAllocation, Node
from gpuaas_contract.event_types import AllocationChanged
from gpuaas_contract.lifecycles import AllocationStatus
from gpuaas_contract.paths import AllocationPath, ProjectPath

from gpuaas_platform.allocations import rules, selection, store
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.catalog import permissions
from gpuaas_platform.kit import db, ids, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.nodes.tasks import service as tasks
from gpuaas_platform.policy import service as policy
from gpuaas_platform.record import service as record

many = store.many
LOOP = "allocations"
"""Topic that wakes the loop of allocations."""
PROVISION_TASK = "allocation.provision"
_PLACE = "capacity.allocation.place"
_SEE_NODES = "capacity.node.read"


async def check_place(call: Call, wanted: CreateAllocation) -> CreateAllocation:
    """Check the request before the transaction, because a denial must be recorded even if the call is rolled back."""
    rules.check_request(wanted)
    if wanted.node_name and not await _may(call.site.database.reader, call, _PLACE):
        raise await permissions.denial(call, _PLACE, f"To name the node needs {_PLACE}; ask for a SKU or region.")
    return wanted


async def create(tx: db.Tx, call: Call, wanted: CreateAllocation) -> Allocations:
    """Claim nodes in one transaction. Write transactions run one at a time, so two requests never get the same node."""
    chosen = await _choose(tx, call, wanted)
    trusted = await ssh_trust.public_keys(tx, call.site)
    made = [await _claim(tx, call, wanted, node, trusted) for node in chosen]
    call.details["allocation_ids"] = [allocation.allocation_id for allocation in made]
    return Allocations(items=made)


async def list_allocations(reader: db.Reader, call: Call[ProjectPath, AllocationQuery]) -> EncodedPage[Allocation]:
    where, values = store.list_filter(call.in_project().project_id, call.query)
    return await paging.encoded(reader, store.ALLOCATIONS, call.query, where, *values)


async def get(reader: db.Reader, call: Call[AllocationPath]) -> Allocation:
    """Return the allocation that the path names."""
    return await in_project(reader, call.in_project().project_id, call.path.allocation_id)


async def in_project(reader: db.Reader, project_id: str, id_or_node: str) -> Allocation:
    """Return the project's allocation with this id, or the one on the node with this name."""
    allocation = await store.ALLOCATIONS.get(reader, id_or_node)
    if allocation is None:
        node = await nodes.by_name(reader, id_or_node)
        allocation = await store.ALLOCATIONS.get(reader, node.allocation_id or "") if node else None
    if allocation is None or allocation.project_id != project_id:
        raise errors.NotFound(f"There is no allocation {id_or_node} in this project.", fix="gpuaas get allocations")
    return allocation


async def owned_by(reader: db.Reader, project_id: str) -> list[str]:
    """Return the ids of the project's allocations that are not released."""
    return await store.ALLOCATIONS.keys(reader, "project_id = $1 AND status <> 'released'", project_id)


async def spares(reader: db.Reader, project_id: str) -> list[Allocation]:
    """Return the active allocations of the project on ready nodes that no app instance and no person uses, newest
    first."""
    return await store.spares(reader, project_id)


async def is_on_ready_node(reader: db.Reader, allocation: Allocation) -> bool:
    """Return whether the platform receives heartbeats of the allocation's node."""
    node = await nodes.by_id(reader, allocation.node_id)
    return node is not None and node.status == "ready"


async def ids_of(reader: db.Reader, project_id: str, names: Iterable[str]) -> dict[str, str]:
    """Return name -> allocation id for names in a request. An unknown name is its own id; a later check refuses it."""
    resolved: dict[str, str] = {}
    for name in names:
        try:
            resolved[name] = (await in_project(reader, project_id, name)).allocation_id
        except errors.NotFound:
            resolved[name] = name
    return resolved


async def host_public_key(reader: db.Reader, allocation: Allocation) -> str:
    node = await nodes.by_id(reader, allocation.node_id)
    if node is None:
        raise errors.NotFound
    return node.ssh_host_public_key


async def save(tx: db.Tx, origin: Origin, before: Allocation, after: Allocation) -> Allocation:
    """Save the allocation; emit an event if its status changed. No other code may change the status."""
    lifecycles.check_move(before.allocation_id, lifecycles.ALLOCATION, before.status, after.status)
    saved = msgspec.structs.replace(after, updated_at=origin.now)
    await store.ALLOCATIONS.save(tx, saved)
    if after.status != before.status:
        await _announce(tx, origin, saved, before.status)
    return saved


async def set_used(tx: db.Tx, allocation: Allocation, instance_id: str, used: bool) -> None:
    """Record whether the instance has a member on the allocation. Releasing a used allocation needs an override."""
    others = [user for user in allocation.used_by_instance_ids if user != instance_id]
    users = [*others, instance_id] if used else others
    await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, used_by_instance_ids=users))


async def is_provision_due(reader: db.Reader, site: Site, now: datetime.datetime) -> bool:
    """Return whether an allocation waits for its node to be prepared, so that `provision_waiting` has something to
    write."""
    return bool(await _waiting(reader, now)) and bool(await ssh_trust.public_keys(reader, site))


async def provision_waiting(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Queue the provision tasks of machines that waited for the SSH authority or were reinstalled."""
    waiting, trusted = await _waiting(tx, origin.now), await ssh_trust.public_keys(tx, site)
    if not trusted:
        return
    answered_by = origin.now + datetime.timedelta(seconds=site.settings.task_ttl_s)
    for allocation in waiting:
        retrying = system_origin(origin.now, allocation.correlation_id)
        await _queue_provision(tx, site, retrying, allocation, trusted)
        await save(tx, retrying, allocation, rules.provisioning(allocation, answered_by))


async def ask_for_observer(tx: db.Tx, call: Call, allocation_id: str) -> None:
    """Have a machine prepared again that has no user for observers. The task changes nothing else on it."""
    allocation, trusted = await in_project(tx, call.in_project().project_id, allocation_id), []
    if rules.must_ask_for_observer(allocation, call.now):
        trusted = await ssh_trust.public_keys(tx, call.site)
    if trusted:
        await _queue_provision(tx, call.site, call.origin, allocation, trusted)
        await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, observer_asked_at=call.now))


async def _waiting(reader: db.Reader, now: datetime.datetime) -> list[Allocation]:
    requested = await store.ALLOCATIONS.find(reader, "status = 'requested' ORDER BY allocation_id")
    return [*requested, *await store.due(reader, "provision_retry_at", now)]


async def _choose(tx: db.Tx, call: Call, wanted: CreateAllocation) -> list[Node]:
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    selection.check_policy(layers, wanted, await store.unreleased_count(tx, project.project_id))
    reuser = project.project_id if call.site.settings.node_reuse else ""
    free = await nodes.free(tx, reuser, region=wanted.region, sku=wanted.sku, name=wanted.node_name)
    place = selection.choose_place(free, wanted.count, layers)
    if place is None:
        names_nodes = await _may(tx, call, _SEE_NODES)
        raise selection.refusal(await nodes.summaries(tx, reuser), wanted, layers, names_nodes=names_nodes)
    return await nodes.smallest_free(tx, reuser, place.region, place.skus, name=wanted.node_name, limit=wanted.count)


async def _claim(tx: db.Tx, call: Call, wanted: CreateAllocation, node: Node, trusted: Sequence[str]) -> Allocation:
    allocation = _allocation(call, wanted, node)
    if not trusted:
        allocation = rules.waiting(allocation)
    await store.ALLOCATIONS.insert(tx, allocation)
    await nodes.assign(tx, node, allocation)
    if trusted:
        await _queue_provision(tx, call.site, call.origin, allocation, trusted)
    await _announce(tx, call.origin, allocation, None)
    return allocation


async def _announce(tx: db.Tx, origin: Origin, allocation: Allocation, was: AllocationStatus | None) -> None:
    """Emit the event for a new allocation or a new status."""
    payload, cause = structs.pick(AllocationChanged, allocation, was=was), allocation.correlation_id
    await record.emit(tx, origin, "capacity.allocation.changed", payload, allocation, correlation_id=cause)


async def _queue_provision(
    tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, trusted: Sequence[str]
) -> None:
    params = {
        "allocation_id": allocation.allocation_id,
        "user": allocation.username_on_node,
        "principal": allocation.allocation_id,
        "user_ca_public_keys": list(trusted),
    }
    about = (allocation.node_id, PROVISION_TASK, allocation.allocation_id)
    await tasks.queue(tx, site, origin, *about, params, project_id=allocation.project_id)


def _allocation(call: Call, wanted: CreateAllocation, node: Node) -> Allocation:
    project, allocation_id = call.in_project(), ids.new("alloc")
    return Allocation(
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
        scheduler_type=wanted.scheduler_type,
        integration_metadata=wanted.integration_metadata,
    )


async def _may(reader: db.Reader, call: Call, permission: str) -> bool:
    return await permissions.holds(reader, call.caller, call.in_project(), permission)
