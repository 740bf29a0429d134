"""What people and automation ask for: deploy, decommission, member operations, machine access.

Each is accepted as an operation; the app's controller does the work through `runtime`."""

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.access import MachineAccess, RequestMachineAccess
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.catalog import AppVersion, Manifest
from gpuaas_contract.event_types import InstanceChanged, OperationAccepted
from gpuaas_contract.instances import (
    Decommission,
    Deployed,
    DeployInstance,
    Instance,
    Member,
    MemberOperationRequest,
)
from gpuaas_contract.operations import Operation, OperationKind, Target

from gpuaas_platform.access import service as access
from gpuaas_platform.call import Call
from gpuaas_platform.capacity import service as capacity
from gpuaas_platform.catalog import rules as catalog_rules
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.instances import changes, rules, store
from gpuaas_platform.kit import db, ids
from gpuaas_platform.policy import service as policy


async def deploy(tx: db.Tx, call: Call, body: DeployInstance) -> Deployed:
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    version = await catalog.deployable(tx, project.project_id, body.app_slug, body.version, layers)
    catalog_rules.check_inputs(version.manifest, body.topology, body.inputs)
    placement = catalog_rules.placement(version.manifest, body.topology, body.inputs)
    if await store.live_instance_named(tx, project.project_id, body.name):
        raise errors.Conflict(f"There is an instance named {body.name} already.", details={"field": "name"})
    rules.check_policy(layers, await store.live_count(tx, project.project_id), placement)
    instance = _new_instance(call, body, version, placement)
    await store.INSTANCES.insert(tx, instance)
    members = [
        await _new_member(tx, call, instance, component_key, allocation_id)
        for component_key, allocation_ids in placement.items()
        for allocation_id in allocation_ids
    ]
    operation = await _accept(tx, call, instance, version.manifest, "deploy", members)
    instance = msgspec.structs.replace(instance, last_operation_id=operation.operation_id)
    await store.INSTANCES.save(tx, instance)
    requested = InstanceChanged(operation_id=operation.operation_id, kind=operation.kind, name=instance.name)
    await changes.tell(tx, call.origin, "apps.instance.requested", operation, requested)
    return Deployed(instance=instance, operation=operation)


async def decommission(tx: db.Tx, call: Call, instance_id: str, body: Decommission) -> Operation:
    instance = await in_project(tx, call, instance_id)
    if instance.status == "deleted":
        raise errors.Conflict("The instance is deleted already.")
    if body.force and not body.reason:
        raise errors.ValidationFailed("Force needs a reason.", details={"field": "reason"})
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    members = rules.live_members(await store.members_of(tx, instance_id))
    rules.check_free(await store.active_operations(tx, instance_id), "decommission", ())
    operation = await _accept(
        tx, call, instance, manifest, "decommission", members, reason=body.reason, force=body.force
    )
    await changes.set_instance_status(tx, call.origin, instance, "deleting", "", operation)
    return operation


async def operate_members(tx: db.Tx, call: Call, instance_id: str, body: MemberOperationRequest) -> Operation:
    instance = await in_project(tx, call, instance_id)
    if body.force and not body.reason:
        raise errors.ValidationFailed("Force needs a reason.", details={"field": "reason"})
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    members = await store.members_of(tx, instance_id)
    component_key = rules.check_member_request(manifest, instance, members, body)
    rules.check_free(await store.active_operations(tx, instance_id), body.kind, body.member_ids)
    if body.kind == "add":
        layers = await policy.of_project(tx, call.in_project())
        rules.check_members_max(layers, len(rules.live_members(members)), len(body.allocation_ids))
        targets = [await _new_member(tx, call, instance, component_key, found) for found in body.allocation_ids]
    else:
        targets = [member for member in members if member.member_id in body.member_ids]
    return await _accept(
        tx,
        call,
        instance,
        manifest,
        body.kind,
        targets,
        component_key=component_key,
        reason=body.reason,
        force=body.force,
    )


async def machine_access(tx: db.Tx, call: Call, allocation_id: str, body: RequestMachineAccess) -> MachineAccess:
    """A controller gets in only for an operation it holds, on a machine of that operation's instance."""
    allocation = await capacity.in_project(tx, call.in_project().project_id, allocation_id)
    if body.operation_id:
        await _check_hold(tx, call, allocation, body)
    elif call.caller.actor_type != "user":
        raise errors.PermissionDenied("A service account names the operation it holds.")
    return await access.grant(tx, call, allocation, body)


async def in_project(reader: db.Reader, call: Call, instance_id: str) -> Instance:
    """By id, or by the name of an instance that is not deleted."""
    project_id = call.params["project_id"]
    instance = await store.INSTANCES.get(reader, instance_id)
    if instance is None:
        instance = await store.live_instance_named(reader, project_id, instance_id)
    if instance is None or instance.project_id != project_id:
        raise errors.NotFound(f"There is no instance {instance_id} in this project.")
    return instance


def _new_instance(call: Call, body: DeployInstance, version: AppVersion, placement: dict[str, list[str]]) -> Instance:
    project = call.in_project()
    instance_id = ids.new("inst")
    scope = f"{call.site.settings.region}:{project.org_id}:{project.project_id}"
    operator = call.caller.actor_id if call.caller.actor_type == "service_account" else ""
    return Instance(
        instance_id=instance_id,
        resource_name=f"gpuaas:{scope}:app-instance:{instance_id}",
        org_id=project.org_id,
        project_id=project.project_id,
        app_slug=version.app_slug,
        app_version=version.version,
        name=body.name,
        status="requested",
        status_reason="",
        topology=body.topology,
        operating_mode=version.manifest.operating_modes[0],
        control_plane_scope=version.manifest.control_plane_scopes[0],
        runtime_backend=version.manifest.runtime_backend,
        placement=placement,
        inputs=body.inputs,
        operator_service_account_id=body.operator_service_account_id or operator,
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        last_operation_id="",
        revision=1,
        created_at=call.now,
        updated_at=call.now,
    )


async def _new_member(tx: db.Tx, call: Call, instance: Instance, component_key: str, allocation_id: str) -> Member:
    allocation = await capacity.in_project(tx, instance.project_id, allocation_id)
    if allocation.status != "active":
        raise errors.Conflict(f"{allocation_id} is {allocation.status}; only an active allocation can carry a member.")
    others = [found for found in allocation.used_by_instance_ids if found != instance.instance_id]
    if others:
        raise errors.Conflict(f"{allocation_id} is used by {others[0]}.", details={"instance_ids": others})
    await capacity.set_used(tx, allocation, instance.instance_id, True)
    member = Member(
        member_id=ids.new("mem"),
        instance_id=instance.instance_id,
        org_id=instance.org_id,
        project_id=instance.project_id,
        component_key=component_key,
        status="requested",
        status_reason="",
        allocation_id=allocation_id,
        node_id=allocation.node_id,
        node_name=allocation.node_name,
        address=allocation.address,
        last_operation_id="",
        correlation_id=call.origin.correlation_id,
        adapter_detail={},
        observed_version="",
        was_ready=False,
        revision=1,
        created_at=call.now,
        updated_at=call.now,
    )
    await store.MEMBERS.insert(tx, member)
    return member


async def _accept(
    tx: db.Tx,
    call: Call,
    instance: Instance,
    manifest: Manifest,
    kind: OperationKind,
    members: list[Member],
    *,
    component_key: str = "",
    reason: str = "",
    force: bool = False,
) -> Operation:
    operation = Operation(
        operation_id=ids.new("op"),
        org_id=instance.org_id,
        project_id=instance.project_id,
        instance_id=instance.instance_id,
        instance_name=instance.name,
        app_slug=instance.app_slug,
        kind=kind,
        component_key=component_key,
        status="accepted",
        targets=[Target(member_id=member.member_id) for member in members],
        steps=[],
        reason=reason,
        force=force,
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=rules.deadline(manifest, kind, call.now),
        error=None,
        revision=1,
        created_at=call.now,
        started_at=None,
        ended_at=None,
    )
    await store.OPERATIONS.insert(tx, operation)
    for member in members:
        owned = msgspec.structs.replace(
            member, last_operation_id=operation.operation_id, correlation_id=operation.correlation_id
        )
        await changes.save_member(tx, call.origin, member, owned)
    accepted = OperationAccepted(
        operation_id=operation.operation_id, kind=operation.kind, members=[member.member_id for member in members]
    )
    await changes.tell(tx, call.origin, "apps.operation.accepted", operation, accepted)
    tx.wake(changes.claims_topic(instance.project_id, instance.app_slug))
    return operation


async def _check_hold(tx: db.Tx, call: Call, allocation: Allocation, body: RequestMachineAccess) -> None:
    operation = await store.OPERATIONS.get(tx, body.operation_id)
    if operation is None or operation.project_id != allocation.project_id:
        raise errors.NotFound(f"There is no operation {body.operation_id} in this project.")
    rules.check_holder(operation, body.epoch)
    if operation.instance_id not in allocation.used_by_instance_ids:
        raise errors.PermissionDenied("The allocation does not belong to this operation's instance.")
