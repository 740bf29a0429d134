"""Requests of users and automation: deploy, change the whole instance, change members, set the operator.

An accepted request becomes an operation, and the app's controller does the work."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeVar

from gpuaas_contract import errors
from gpuaas_contract.catalog import AppVersion, Manifest, RoleSpec
from gpuaas_contract.event_types import InstanceChanged
from gpuaas_contract.instances import (
    ChangeInstance,
    Deployed,
    DeployInstance,
    Instance,
    Member,
    MemberOperationRequest,
    ReconfigureInstance,
    SetOperator,
    UpgradeInstance,
)
from gpuaas_contract.operations import JOINING, Operation, OperationKind
from gpuaas_contract.paths import InstancePath
from gpuaas_contract.protocol import request as request_rules
from msgspec.structs import replace

from gpuaas_platform.allocations import service as allocations
from gpuaas_platform.artifacts import service as artifacts
from gpuaas_platform.call import Call
from gpuaas_platform.catalog import permissions as app_permissions
from gpuaas_platform.catalog import rules as catalog_rules
from gpuaas_platform.catalog import service as catalog
from gpuaas_platform.identity import authority
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity.accounts import service as service_accounts
from gpuaas_platform.instances import breakers, events, holds, names, stewardships
from gpuaas_platform.instances import members as instance_members
from gpuaas_platform.instances import service as instances
from gpuaas_platform.kit import db, ids
from gpuaas_platform.operations import read, rules, state, store
from gpuaas_platform.operations.accept import OperationDraft, accept, with_allocation_ids
from gpuaas_platform.policy import rules as policy_rules
from gpuaas_platform.policy import service as policy


async def deploy(tx: db.Tx, call: Call, body: DeployInstance) -> Deployed:
    project = call.in_project()
    layers = await policy.of_project(tx, project)
    version = await catalog.deployable(tx, project.project_id, body.app_slug, body.version, layers)
    manifest = version.manifest
    inputs = await _named_inputs(tx, project.project_id, manifest, body.topology, body.inputs)
    catalog_rules.check_inputs(manifest, body.topology, inputs)
    placement = catalog_rules.placement(manifest, body.topology, inputs)
    await instances.check_name_free(tx, project.project_id, body.name)
    present, asked = await instances.live_count(tx, project.project_id), sum(map(len, placement.values()))
    policy_rules.check_limit(layers, "instances_max", present=present, asked=1)
    policy_rules.check_limit(layers, "members_per_instance_max", present=0, asked=asked)
    await _check_entitled_counts(tx, project.project_id, body.app_slug, 1, asked)
    operator = await _operator(tx, project.project_id, body.app_slug, body.operator_service_account_id)
    body = replace(body, inputs=inputs, operator_service_account_id=operator)
    resolved = await _resolve_artifacts(tx, call, manifest)
    instance = _new_instance(call, body, version, placement, resolved)
    members = [
        await instance_members.new(tx, call, instance, component_key, allocation_id)
        for component_key, allocation_ids in placement.items()
        for allocation_id in allocation_ids
    ]
    operation = await accept(tx, call, instance, manifest, OperationDraft("deploy", members))
    instance = replace(instance, last_operation_id=operation.operation_id)
    await instances.add(tx, instance)
    requested = InstanceChanged(operation_id=operation.operation_id, kind=operation.kind, name=instance.name)
    await events.emit(tx, call.origin, "apps.instance.requested", operation, requested)
    return Deployed(instance=instance, operation=operation, members=members)


Forcible = TypeVar("Forcible", bound=ChangeInstance | UpgradeInstance | ReconfigureInstance | MemberOperationRequest)


async def check_force(call: Call, body: Forcible) -> Forcible:
    """Check the permission before the transaction, so that a denial is recorded even if the call is rolled back."""
    if body.force and not may(call, "apps.operation.force"):
        raise await app_permissions.denial(
            call, "apps.operation.force", "A request with force needs the permission apps.operation.force."
        )
    if body.force and not body.reason.strip():
        raise errors.ValidationFailed("Force needs a reason.", details={"field": "reason"})
    return body


async def stop(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance) -> Operation:
    return await _change(tx, call, body, "stop")


async def start(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance) -> Operation:
    return await _change(tx, call, body, "start")


async def restart(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance) -> Operation:
    return await _change(tx, call, body, "restart")


async def decommission(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance) -> Operation:
    return await _change(tx, call, body, "decommission")


async def _change(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance, kind: OperationKind) -> Operation:
    """Accept an operation on the whole instance that needs no input except its kind."""
    instance = await instances.named(tx, call)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    request_rules.check_instance_request(manifest, instance, kind)
    draft = OperationDraft(kind, reason=body.reason, force=body.force)
    return await _change_all(tx, call, instance, manifest, draft)


async def rollback(tx: db.Tx, call: Call[InstancePath], body: ChangeInstance) -> Operation:
    instance = await instances.named(tx, call)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    request_rules.check_instance_request(manifest, instance, "rollback")
    back_to = await catalog.rollback_target(tx, instance.app_slug, instance.app_version, instance.previous_version)
    inputs, version = instance.previous_inputs, back_to.version
    draft = OperationDraft("rollback", reason=body.reason, force=body.force, to_version=version, inputs=inputs)
    return await _change_all(tx, call, instance, manifest, draft)


async def upgrade(tx: db.Tx, call: Call[InstancePath], body: UpgradeInstance) -> Operation:
    instance = await instances.named(tx, call)
    layers = await policy.of_project(tx, call.in_project())
    wanted = await catalog.upgradable(
        tx, instance.project_id, instance.app_slug, instance.app_version, body.version, layers
    )
    request_rules.check_instance_request(wanted.manifest, instance, "upgrade")
    inputs = instance.inputs
    if body.inputs is not None:
        inputs = await _named_inputs(tx, instance.project_id, wanted.manifest, instance.topology, body.inputs)
    catalog_rules.check_inputs(wanted.manifest, instance.topology, inputs)
    await _resolve_artifacts(tx, call, wanted.manifest)
    draft = OperationDraft("upgrade", reason=body.reason, force=body.force, to_version=wanted.version, inputs=inputs)
    return await _change_all(tx, call, instance, wanted.manifest, draft)


async def reconfigure(tx: db.Tx, call: Call[InstancePath], body: ReconfigureInstance) -> Operation:
    instance = await instances.named(tx, call)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    request_rules.check_instance_request(manifest, instance, "reconfigure")
    inputs = request_rules.inputs_after(manifest, instance, body)
    catalog_rules.check_inputs(manifest, instance.topology, inputs)
    draft = OperationDraft(
        "reconfigure", reason=body.reason, force=body.force, inputs=inputs, inputs_before=instance.inputs
    )
    return await _change_all(tx, call, instance, manifest, draft)


async def operate_members(
    tx: db.Tx, call: Call[InstancePath], body: MemberOperationRequest, *, by_steward: bool = False
) -> Operation:
    instance = await instances.named(tx, call)
    manifest = await catalog.manifest_of(tx, instance.app_slug, instance.app_version)
    members = await instances.live_members(tx, instance.instance_id)
    allocation_ids = await allocations.ids_of(tx, instance.project_id, body.allocation_ids)
    body = replace(
        body,
        member_ids=names.member_ids(members, body.member_ids, names.roles_meant(manifest, body)),
        allocation_ids=[allocation_ids[name] for name in body.allocation_ids],
    )
    role = request_rules.check_member_request(manifest, instance, members, body)
    await _check_member_operation(tx, call, instance, role, members, body)
    draft = OperationDraft(
        body.kind,
        await _targets(tx, call, instance, role, members, body),
        replacements=await _replacements(tx, instance, body),
        component_key=role.component_key,
        reason=body.reason,
        force=body.force,
        by_steward=by_steward,
        stop_after_failures=body.stop_after_failures,
        exclusive=body.kind in role.exclusive,
    )
    return await accept(tx, call, instance, manifest, draft)


async def set_operator(tx: db.Tx, call: Call[InstancePath], body: SetOperator) -> Instance:
    """Set the operator of the instance and its open operations; the previous account is refused from now on."""
    call.details["reason"] = body.reason
    instance = await instances.named(tx, call)
    if body.operator_service_account_id == instance.operator_service_account_id:
        return instance
    account_id = await _operator(tx, instance.project_id, instance.app_slug, body.operator_service_account_id)
    if account_id == instance.operator_service_account_id:
        return instance
    for operation in await store.active(tx, instance.instance_id):
        handed_over = replace(operation, operator_service_account_id=account_id, lease=None)
        await state.save(tx, operation, handed_over)
    await stewardships.withdraw(tx, instance.instance_id, call.now)
    tx.wake(state.claims_topic(instance.project_id, instance.app_slug))
    return await instances.set_operator(tx, call, instance, account_id, body.reason)


def may(call: Call, permission: str) -> bool:
    """Return whether the caller has a permission; for permissions that the route itself does not require."""
    return authority.can(call.caller, permission, authority.scopes_at(call.in_project())) == "allowed"


async def _change_all(
    tx: db.Tx, call: Call, instance: Instance, manifest: Manifest, draft: OperationDraft
) -> Operation:
    """Accept an operation on all live members."""
    members = await instances.live_members(tx, instance.instance_id)
    request_rules.check_free(await read.active(tx, instance.instance_id), draft.kind, ())
    if not draft.force:
        member_ids = [member.member_id for member in members]
        request_rules.check_holds(draft.kind, member_ids, await holds.standing(tx, instance.instance_id, call.now))
    from_version = instance.app_version if draft.to_version else ""
    draft = dataclasses.replace(draft, members=members, from_version=from_version)
    operation = await accept(tx, call, instance, manifest, draft)
    await state.derive_instance(tx, call.origin, instance, operation)
    return operation


async def _check_member_operation(
    tx: db.Tx, call: Call, instance: Instance, role: RoleSpec, members: Sequence[Member], body: MemberOperationRequest
) -> None:
    """Refuse what other operations, holds, the disruption budget, the breaker or machines in use do not allow."""
    active = await read.active(tx, instance.instance_id)
    request_rules.check_free(active, body.kind, body.member_ids, exclusive=body.kind in role.exclusive)
    if body.kind == "remove":
        request_rules.check_least(role, instance, members, active, body.member_ids)
    if not body.force:
        standing = await holds.standing(tx, instance.instance_id, call.now)
        request_rules.check_holds(body.kind, body.member_ids, standing)
        request_rules.check_budget(role, body.kind, members, active, body.member_ids)
    request_rules.check_machines(role, members, active, body.allocation_ids)
    if body.kind in JOINING:
        request_rules.check_breaker(role, await breakers.state(tx, instance.instance_id, role, call.now))


async def _targets(
    tx: db.Tx, call: Call, instance: Instance, role: RoleSpec, members: Sequence[Member], body: MemberOperationRequest
) -> list[Member]:
    """Return the members that the operation works on; `add` inserts them."""
    if body.kind != "add":
        by_id = {member.member_id: member for member in members}
        return [by_id[member_id] for member_id in body.member_ids]
    more = len(body.allocation_ids)
    layers = await policy.of_project(tx, call.in_project())
    policy_rules.check_limit(layers, "members_per_instance_max", present=len(members), asked=more)
    await _check_entitled_counts(tx, instance.project_id, instance.app_slug, 0, more)
    await instances.fill_missing(tx, instance.instance_id, role.component_key, more)
    return [
        await instance_members.new(tx, call, instance, role.component_key, allocation_id)
        for allocation_id in body.allocation_ids
    ]


async def _replacements(tx: db.Tx, instance: Instance, body: MemberOperationRequest) -> dict[str, str]:
    """For `replace`: bind the new allocations, and return them by member id."""
    if body.kind != "replace":
        return {}
    for allocation_id in body.allocation_ids:
        await instance_members.bind(tx, instance, allocation_id)
    return dict(zip(body.member_ids, body.allocation_ids, strict=True))


async def _check_entitled_counts(
    tx: db.Tx, project_id: str, app_slug: str, more_instances: int, more_members: int
) -> None:
    """Check the counts that the project's entitlement limits; counts without a limit are not read."""
    limits = await catalog.entitlement_limits(tx, project_id, app_slug)
    if limits.instances_max is not None and more_instances:
        present = await instances.live_count_of_app(tx, project_id, app_slug)
        rules.check_entitled_count("instances", limits.instances_max, present, more_instances)
    if limits.members_max is not None:
        present = await instances.live_member_count_of_app(tx, project_id, app_slug)
        rules.check_entitled_count("members", limits.members_max, present, more_members)


async def _operator(tx: db.Tx, project_id: str, app_slug: str, named: str) -> str:
    """Return the id of the service account that a request names as operator; empty for any that operates the app."""
    if not named:
        return ""
    account, details = await service_accounts.active(tx, project_id, named), {"field": "operator_service_account_id"}
    if account is None:
        raise errors.ValidationFailed(f"There is no active service account {named} in this project.", details=details)
    if app_slug not in account.apps:
        fix = identity_rules.how_to_operate(account, app_slug)
        raise errors.ValidationFailed(
            f"The service account {account.name} does not operate {app_slug}.", details=details, fix=fix
        )
    return account.service_account_id


async def _named_inputs(
    reader: db.Reader, project_id: str, manifest: Manifest, topology: str, inputs: Mapping[str, object]
) -> dict[str, object]:
    """Return the inputs with node names replaced by allocation ids: a request may name an allocation by its node."""
    fields = manifest.topologies.get(topology, {}).values()
    return await with_allocation_ids(reader, project_id, manifest.deploy_form, fields, inputs)


async def _resolve_artifacts(tx: db.Tx, call: Call, manifest: Manifest) -> dict[str, str]:
    """Resolve artifacts by digest only: the content behind a name or a tag can change."""
    project = call.in_project()
    for name, wanted in manifest.artifacts.items():
        artifact = await artifacts.deployable(tx, project, name, wanted.digest)
        if wanted.media_type and artifact.media_type != wanted.media_type:
            raise errors.ArtifactMediaTypeMismatch(
                f"{name} is {artifact.media_type}; the manifest names {wanted.media_type}.", details={"artifact": name}
            )
    return {name: wanted.digest for name, wanted in manifest.artifacts.items()}


def _new_instance(
    call: Call, body: DeployInstance, version: AppVersion, placement: dict[str, list[str]], resolved: dict[str, str]
) -> Instance:
    project, manifest = call.in_project(), version.manifest
    instance_id = ids.new("inst")
    scope = f"{call.site.settings.region}:{project.org_id}:{project.project_id}"
    operator = call.caller.actor_id if version.app_slug in call.caller.apps else ""
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
        operating_mode=_one_of("operating_mode", body.operating_mode, manifest.operating_modes),
        control_plane_scope=_one_of("control_plane_scope", body.control_plane_scope, manifest.control_plane_scopes),
        runtime_backend=manifest.runtime_backend,
        placement=placement,
        inputs=body.inputs,
        operator_service_account_id=body.operator_service_account_id or operator,
        requested_by=call.caller.actor_id,
        correlation_id=call.origin.correlation_id,
        last_operation_id="",
        revision=1,
        created_at=call.now,
        updated_at=call.now,
        baseline="new",
        artifacts=resolved,
    )


def _one_of(field: str, wanted: str, offered: Sequence[str]) -> str:
    if wanted and wanted not in offered:
        raise errors.ValidationFailed(f"{field} is one of {', '.join(offered)}.", details={"field": field})
    return wanted or offered[0]
