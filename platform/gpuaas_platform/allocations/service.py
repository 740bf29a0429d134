"""Allocations: claim nodes for a project and have their agents prepare them. `allocation_release` gives them back."""

import datetime
from collections.abc import Iterable, Sequence

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation, Allocations, CreateAllocation, Node

from gpuaas_platform.allocations import changes as allocation_changes
from gpuaas_platform.allocations import rules, store
from gpuaas_platform.allocations import selection as allocation_placement
from gpuaas_platform.call import Call, Origin, Site, system_origin
from gpuaas_platform.catalog import permissions
from gpuaas_platform.kit import clock, db, ids
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.policy import service as policy

_PLACE = "capacity.allocation.place"
_SEE_NODES = "capacity.node.read"


async def check_place(call: Call, wanted: CreateAllocation) -> CreateAllocation:
    """Comes before the transaction, because a denial is recorded whatever becomes of the call."""
    rules.check_request(wanted)
    if wanted.node_name and not await _may(call.site.database.reader, call, _PLACE):
        raise await permissions.denial(call, _PLACE, f"To name the node needs {_PLACE}; ask for a SKU or region.")
    return wanted


async def create(tx: db.Tx, call: Call, wanted: CreateAllocation) -> Allocations:
    """All in one transaction, and writers run one after another: two requests never get the same node."""
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    allocation_placement.check_policy(layers, wanted, await store.unreleased_count(tx, project.project_id))
    present = await store.NODES.find(tx, "admin_state <> 'retired' ORDER BY name")
    names_nodes = await _may(tx, call, _SEE_NODES)
    chosen = allocation_placement.choose(present, wanted, layers, names_nodes=names_nodes)
    trusted = await ssh_trust.public_keys(tx, call.site)
    made = [await _claim(tx, call, wanted, node, trusted) for node in chosen]
    call.details["allocation_ids"] = [allocation.allocation_id for allocation in made]
    return Allocations(items=made)


async def provision_waiting(tx: db.Tx, site: Site, origin: Origin) -> None:
    """Claimed before there was an authority for their machines to trust, or on nodes that were installed anew."""
    claimed = await store.ALLOCATIONS.find(tx, "status = 'requested' ORDER BY allocation_id")
    waiting = [*claimed, *await store.provisions_due(tx, clock.micros(origin.now))]
    trusted = await ssh_trust.public_keys(tx, site) if waiting else []
    if not trusted:
        return
    answered_by = origin.now + datetime.timedelta(seconds=site.settings.task_ttl_s)
    for allocation in waiting:
        going_on = system_origin(origin.now, allocation.correlation_id)
        await _queue_provision(tx, site, going_on, allocation, trusted)
        await allocation_changes.save(tx, going_on, allocation, rules.provisioning(allocation, answered_by))


async def in_project(reader: db.Reader, project_id: str, allocation_id: str) -> Allocation:
    """By id, or by the name of the node it holds."""
    allocation = await store.ALLOCATIONS.get(reader, allocation_id) or await store.allocation_on(reader, allocation_id)
    if allocation is None or allocation.project_id != project_id:
        raise errors.NotFound(f"There is no allocation {allocation_id} in this project.")
    return allocation


async def ids_of(reader: db.Reader, project_id: str, named: Iterable[str]) -> dict[str, str]:
    """By what the request names them. An unknown name stays as it is, for the check that refuses it."""
    ids: dict[str, str] = {}
    for name in named:
        try:
            ids[name] = (await in_project(reader, project_id, name)).allocation_id
        except errors.NotFound:
            ids[name] = name
    return ids


async def host_public_key(reader: db.Reader, allocation: Allocation) -> str:
    node = await store.NODES.get(reader, allocation.node_id)
    if node is None:
        raise errors.NotFound
    return node.ssh_host_public_key


async def set_used(tx: db.Tx, allocation: Allocation, instance_id: str, used: bool) -> None:
    """Called by the domain that binds members to allocations; a used allocation is not released without override."""
    others = [found for found in allocation.used_by_instance_ids if found != instance_id]
    users = [*others, instance_id] if used else others
    await store.ALLOCATIONS.save(tx, msgspec.structs.replace(allocation, used_by_instance_ids=users))


async def _claim(tx: db.Tx, call: Call, wanted: CreateAllocation, node: Node, trusted: Sequence[str]) -> Allocation:
    allocation = _allocation(call, wanted, node)
    if not trusted:
        allocation = rules.waiting(allocation)
    await store.ALLOCATIONS.insert(tx, allocation)
    await store.NODES.save(tx, msgspec.structs.replace(node, allocation_id=allocation.allocation_id))
    if trusted:
        await _queue_provision(tx, call.site, call.origin, allocation, trusted)
    await allocation_changes.tell(tx, call.origin, allocation, None)
    return allocation


async def _queue_provision(
    tx: db.Tx, site: Site, origin: Origin, allocation: Allocation, trusted: Sequence[str]
) -> None:
    params: dict[str, object] = {
        "allocation_id": allocation.allocation_id,
        "user": allocation.username_on_node,
        "principal": allocation.allocation_id,
        "user_ca_public_keys": list(trusted),
    }
    kind, subject_id = "allocation.provision", allocation.allocation_id
    await nodes.queue_task(tx, site, origin, allocation.node_id, kind, subject_id, params)


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
