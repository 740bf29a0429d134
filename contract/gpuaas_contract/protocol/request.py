"""Decide whether a change may be requested. Every refusal names the obstacle and the next step."""

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import CHANGEABLE, Manifest, RoleSpec
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import BreakerState, Instance, Member, MemberOperationRequest, ReconfigureInstance
from gpuaas_contract.operations import (
    ASKING_KINDS,
    DEADLINES_S,
    DISRUPTIVE_KINDS,
    INSTANCE_KINDS,
    JOINING,
    Operation,
    OperationHead,
    OperationKind,
)

MEMBER_STARTS: dict[str, frozenset[str]] = {
    "drain": frozenset({"ready", "degraded", "draining", "drained"}),
    "resume": frozenset({"draining", "drained", "ready", "degraded"}),
    "remove": frozenset(lifecycles.MEMBER) - lifecycles.GONE_MEMBER,
    "replace": frozenset({"ready", "degraded", "draining", "drained", "removing", "failed"}),
    "repair": frozenset({"ready", "degraded", "draining", "drained", "failed"}),
}
"""Member states from which an operation can start."""

UP = frozenset({"running", "degraded"})
"""Instance states in which members can be changed and actions run."""

INSTANCE_STARTS: dict[str, frozenset[str]] = {
    "stop": UP | {"failed"},
    "start": frozenset({"stopped", "failed"}),
    "restart": UP,
    "upgrade": UP,
    "rollback": UP,
    "reconfigure": UP,
    "decommission": frozenset(lifecycles.INSTANCE) - {"deleted"},
}
"""Instance states from which an operation can start."""

OUT_OF_SERVICE = frozenset({"draining", "drained", "removing", "failed"})

_REMOVING_KINDS = frozenset({"remove", "replace", "decommission"})


def deadline(manifest: Manifest, kind: OperationKind, now: datetime.datetime, action: str = "") -> datetime.datetime:
    declared = next((spec.deadline_s for spec in manifest.actions if spec.name == action), None)
    return now + datetime.timedelta(seconds=declared or manifest.deadlines_s.get(kind, DEADLINES_S[kind]))


def can_undo(undoes: Sequence[str] | None, kind: OperationKind, component_key: str) -> bool:
    """Return whether a controller can undo the operation. `undoes` is the list of its claim; None: it sent no list."""
    return undoes is None or kind in undoes or f"{kind}/{component_key}" in undoes


def check_free(
    active: Sequence[Operation],
    kind: OperationKind,
    member_ids: Iterable[str],
    *,
    exclusive: bool = False,
    reading: bool = False,
) -> None:
    """Refuse a second operation on a member. Operations on the instance and exclusive ones exclude all others, except
    those that only read."""
    if kind == "preview" or reading:
        return
    wanted = set(member_ids)
    for other in active:
        if other.kind == "preview" or other.reading:
            continue
        overlap, alone = wanted & {target.member_id for target in other.targets}, exclusive or other.exclusive
        if {kind, other.kind} & ASKING_KINDS and not alone:
            continue
        if alone or {kind, other.kind} & INSTANCE_KINDS or overlap:
            raise errors.OperationInProgress(
                f"{other.action or other.kind} ({other.operation_id}) is {other.status} here.",
                details={"operation_id": other.operation_id, "kind": other.kind, "members": sorted(overlap)},
                fix=f"gpuaas op follow {other.operation_id}",
            )


def check_instance_request(manifest: Manifest, instance: Instance, kind: OperationKind) -> None:
    """Refuse an operation that the app does not have, or that the instance's status does not allow."""
    if kind != "decommission" and kind not in manifest.instance_operations:
        offered = [*manifest.instance_operations, "decommission"]
        raise errors.Conflict(
            f"{manifest.display_name} {manifest.version} does not offer {kind}.",
            details={"operations": manifest.instance_operations},
            fix=f"The app decides what it offers. For the whole instance, it offers: {', '.join(offered)}.",
        )
    if instance.status not in INSTANCE_STARTS[kind]:
        raise errors.Conflict(
            f"The instance is {instance.status}; {kind} needs it {' or '.join(sorted(INSTANCE_STARTS[kind]))}.",
            details={"status": instance.status},
            fix=fix_of_status(instance),
        )
    if kind == "rollback" and not instance.previous_version:
        raise errors.Conflict(
            "There is no version to return to: the instance was not upgraded since its deploy or its last rollback.",
            fix=f"gpuaas describe instance {instance.name} shows its version and its operations.",
        )


def fix_of_status(instance: Instance) -> str:
    """Return the next command for a request that the status of the instance does not allow."""
    if instance.status == "stopped":
        return f"gpuaas start {instance.name}"
    return f"gpuaas describe instance {instance.name} shows what it does now."


def inputs_after(manifest: Manifest, instance: Instance, request: ReconfigureInstance) -> dict[str, Any]:
    """Return the inputs of an instance after a reconfigure. Refuse fields that cannot be changed, and no change."""
    if request.previous:
        wanted = instance.inputs_before
        if request.inputs:
            raise errors.ValidationFailed("Send `inputs` or `previous`, not both.", details={"field": "previous"})
        if not wanted:
            raise errors.Conflict(
                "The instance was not reconfigured since its deploy or its last upgrade.",
                fix=f"gpuaas reconfigure {instance.name} --set NAME=VALUE changes an input.",
            )
    else:
        _check_changeable(manifest, request.inputs)
        given = {**instance.inputs, **request.inputs}
        wanted = {field: value for field, value in given.items() if value is not None}
    if _canonical(wanted) == _canonical(instance.inputs):
        raise errors.Conflict(
            "Nothing would change: the instance has these inputs already.",
            fix=f"gpuaas get instance {instance.name} -o yaml shows its inputs.",
        )
    return wanted


def changeable(manifest: Manifest) -> list[str]:
    """Return the names of the inputs that people may change after the deploy."""
    fields: dict[str, Any] = manifest.deploy_form.get("properties", {})
    return [name for name, schema in fields.items() if isinstance(schema, dict) and schema.get(CHANGEABLE) is True]


def _check_changeable(manifest: Manifest, inputs: Mapping[str, Any]) -> None:
    known = changeable(manifest)
    for field in inputs:
        if field not in known:
            raise errors.ValidationFailed(
                f"{manifest.display_name} does not allow a change of {field[:100]} after the deploy.",
                details={"field": f"inputs.{field[:100]}", "changeable": known},
                fix=f"These inputs can be changed: {', '.join(known) or 'none'}.",
            )


def _canonical(inputs: Mapping[str, Any]) -> bytes:
    """Return the inputs as bytes to compare; `==` takes 1 and true for the same."""
    return msgspec.json.encode(inputs, order="deterministic")


def check_member_request(
    manifest: Manifest, instance: Instance, members: Sequence[Member], request: MemberOperationRequest
) -> RoleSpec:
    """Check a member operation and return its role; refuse an operation that is not possible."""
    if instance.status not in UP:
        raise errors.Conflict(
            f"The instance is {instance.status}; its members can be changed only while it runs.",
            fix=fix_of_status(instance),
        )
    _check_names(request)
    component_key = request.component_key or _role_of(manifest, instance, members, request)
    role = next((role for role in manifest.roles if role.component_key == component_key), None)
    if role is None:
        known = ", ".join(spec.component_key for spec in manifest.roles)
        raise errors.ValidationFailed(
            f"The app has no role {component_key!r}. Its roles: {known}.", details={"field": "component_key"}
        )
    if request.kind not in role.operations:
        offered = ", ".join(role.operations) or "nothing"
        raise errors.Conflict(
            f"{manifest.display_name} does not offer {request.kind} for {component_key}.",
            details={"component_key": component_key, "operations": role.operations},
            fix=f"The app decides what it offers. For {component_key}, it offers: {offered}.",
        )
    live = [member for member in live_members(members) if member.component_key == component_key]
    count = len(live) + len(request.allocation_ids)
    if request.kind == "add" and count > role.max:
        raise errors.Conflict(f"There can be at most {role.max} {component_key}; this would make {count}.")
    _check_members(live, instance, request)
    return role


def check_least(
    role: RoleSpec, instance: Instance, members: Sequence[Member], active: Sequence[Operation], removed: Iterable[str]
) -> None:
    """Refuse removals that would leave a role fewer members than its minimum, counting removals in progress."""
    going = {target.member_id for other in active if other.kind == "remove" for target in other.targets}
    going |= set(removed)
    staying = [member for member in live_members(members) if member.member_id not in going]
    if sum(member.component_key == role.component_key for member in staying) < role.min:
        raise errors.Conflict(
            f"At least {role.min} {role.component_key} must stay.", fix=f"gpuaas decommission {instance.name}"
        )


def check_machines(
    role: RoleSpec, members: Sequence[Member], active: Sequence[Operation], allocation_ids: Iterable[str]
) -> None:
    """Refuse a second member of a role on a machine, counting members that are about to move there."""
    taken = {member.allocation_id: member for member in members if member.component_key == role.component_key}
    kept = {
        target.allocation_id: target.member_id
        for other in active
        if other.component_key == role.component_key
        for target in other.targets
        if target.outcome == "pending"
    }
    for allocation_id in allocation_ids:
        if allocation_id in taken:
            there = taken[allocation_id]
            raise errors.Conflict(
                f"{there.node_name} ({allocation_id}) already has the {role.component_key} {there.member_id}.",
                fix=f"Choose a machine without {role.component_key}: gpuaas get allocations",
            )
        if allocation_id in kept:
            raise errors.Conflict(f"{allocation_id} is kept for member {kept[allocation_id]}.")


def check_holds(kind: OperationKind, member_ids: Iterable[str], holds: Iterable[Hold]) -> None:
    blocking = "no_removal" if kind in _REMOVING_KINDS else "no_work" if kind == "resume" else ""
    wanted = set(member_ids)
    for hold in holds:
        if hold.kind == blocking and hold.member_id in wanted:
            raise errors.MemberHeld(
                f"{hold.owner} holds {hold.member_id}: {hold.reason}",
                details={
                    "hold_id": hold.hold_id,
                    "member_id": hold.member_id,
                    "owner": hold.owner,
                    "expires_at": hold.expires_at.isoformat(),
                },
            )


def check_budget(
    role: RoleSpec, kind: OperationKind, members: Sequence[Member], active: Sequence[Operation], asked: Iterable[str]
) -> None:
    """Refuse more than `unavailable_max` members of the role out of service, over all operations."""
    if role.unavailable_max is None or kind not in DISRUPTIVE_KINDS:
        return
    role_members = {member.member_id for member in members if member.component_key == role.component_key}
    down = {member.member_id for member in members if member.status in OUT_OF_SERVICE} & role_members
    going = {target.member_id for other in active if other.kind in DISRUPTIVE_KINDS for target in other.targets}
    unavailable = down | (going & role_members)
    after = unavailable | set(asked)
    if len(after) > role.unavailable_max and after != unavailable:
        raise errors.DisruptionBudget(
            f"{len(after)} {role.component_key} would be out of service; the app allows {role.unavailable_max}.",
            details={"unavailable": sorted(unavailable), "unavailable_max": role.unavailable_max},
        )


def check_breaker(role: RoleSpec, breaker: BreakerState) -> None:
    if breaker.open:
        closes_at = breaker.closes_at.isoformat() if breaker.closes_at else ""
        raise errors.CircuitOpen(
            f"{breaker.failures} {role.component_key} failed to join within {role.breaker.window_s} s.",
            details={"component_key": role.component_key, "failures": breaker.failures, "closes_at": closes_at},
        )


def breaker_state(role: RoleSpec, failed_at: Sequence[datetime.datetime], now: datetime.datetime) -> BreakerState:
    """Return the breaker's state. It is open while the time window contains at least the role's number of failures."""
    window = datetime.timedelta(seconds=role.breaker.window_s)
    recent = sorted(moment for moment in failed_at if now - moment < window)
    if len(recent) < role.breaker.failures:
        return BreakerState(failures=len(recent))
    return BreakerState(open=True, failures=len(recent), closes_at=recent[-role.breaker.failures] + window)


def live_members(members: Iterable[Member]) -> list[Member]:
    return [member for member in members if member.status not in lifecycles.GONE_MEMBER]


class Operator(Protocol):
    """A service account that claims operations and reports."""

    @property
    def actor_id(self) -> str: ...

    @property
    def apps(self) -> Collection[str]:
        """The apps that it operates."""


def check_app(app_slug: str, operator: Operator) -> None:
    """Refuse an account that does not operate the app."""
    if app_slug not in operator.apps:
        slug = app_slug[:100]
        raise errors.PermissionDenied(
            f"This service account does not operate {slug}.",
            details={"app_slug": slug, "apps": sorted(operator.apps)},
            fix=f"A tenant admin can allow it if the account belongs to a project: gpuaas service-account bind NAME "
            f"--app {slug}. An account of an organisation keeps its app; create another one: gpuaas service-account "
            f"create NAME --app {slug} --org ORG",
        )


def check_operator(of: OperationHead | Instance, operator: Operator) -> None:
    """Refuse accounts that do not operate the app and, if the instance names an operator, all others. The epoch in a
    request is no proof, because it is not secret."""
    check_app(of.app_slug, operator)
    if of.operator_service_account_id not in ("", operator.actor_id):
        raise errors.PermissionDenied(
            "Another service account operates this instance.",
            details={"operator_service_account_id": of.operator_service_account_id},
            fix="Sign in as that service account, or have an admin name this one as the instance's operator.",
        )


def check_holder(operation: OperationHead, epoch: int, operator: Operator) -> None:
    """Refuse a report unless it is from the account that claimed, with the newest epoch, for an open operation."""
    check_operator(operation, operator)
    if epoch != operation.epoch or operation.lease is None:
        raise errors.LeaseLost(
            f"Operation {operation.operation_id} was claimed again: its epoch is {operation.epoch}, not {epoch}.",
            details={"operation_id": operation.operation_id, "epoch": operation.epoch},
        )
    if operation.status not in ("running", "cancelling"):
        raise errors.LeaseLost(f"{operation.operation_id} is {operation.status}.")
    if operation.lease.actor_id not in ("", operator.actor_id):
        raise errors.PermissionDenied(
            "Another service account holds this operation.",
            details={"holder": operation.lease.holder},
            fix="Report as the service account that claimed the operation, or claim it after the lease has ended.",
        )


def _role_of(manifest: Manifest, instance: Instance, members: Sequence[Member], request: MemberOperationRequest) -> str:
    """Return the role that the requested members have, for a request that names no role; refuse if they differ."""
    key_of = {member.member_id: member.component_key for member in members}
    unknown = [member_id for member_id in request.member_ids if member_id not in key_of]
    if unknown:
        raise errors.NotFound(
            f"There is no member {unknown[0]} in this instance.", fix=f"gpuaas get members {instance.name}"
        )
    keys = {key_of[member_id] for member_id in request.member_ids}
    if len(keys) > 1:
        raise errors.ValidationFailed("The members have different roles; send one operation per role.")
    if not keys:
        known = ", ".join(role.component_key for role in manifest.roles)
        raise errors.ValidationFailed(
            f"{request.kind} must name the role: {known}.", details={"field": "component_key"}
        )
    return keys.pop()


def _check_names(request: MemberOperationRequest) -> None:
    """Check the ids in the request: `add` needs allocations, `replace` one per member, the other kinds need members."""
    for field, names in (("allocation_ids", request.allocation_ids), ("member_ids", request.member_ids)):
        if len(set(names)) != len(names):
            raise errors.ValidationFailed(f"{field} contains an id twice.", details={"field": field})
    wants_allocations, wants_members = request.kind in JOINING, request.kind != "add"
    if wants_allocations != bool(request.allocation_ids) or wants_members != bool(request.member_ids):
        wanted = " and ".join(
            field for field, needed in (("allocation_ids", wants_allocations), ("member_ids", wants_members)) if needed
        )
        raise errors.ValidationFailed(f"{request.kind} names {wanted}, and nothing else.")
    if request.kind == "replace" and len(request.member_ids) != len(request.allocation_ids):
        raise errors.ValidationFailed("replace names as many allocation_ids as member_ids, in the same order.")


def _check_members(live: Sequence[Member], instance: Instance, request: MemberOperationRequest) -> None:
    by_id = {member.member_id: member for member in live}
    for member_id in request.member_ids:
        member = by_id.get(member_id)
        if member is None:
            raise errors.NotFound(
                f"There is no member {member_id} of that role in this instance.",
                fix=f"gpuaas get members {instance.name}",
            )
        if member.status not in MEMBER_STARTS[request.kind]:
            raise errors.Conflict(f"Member {member_id} is {member.status}; {request.kind} is not possible.")
