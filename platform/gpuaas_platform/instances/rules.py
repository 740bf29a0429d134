"""Pure: may this be asked, may this be reported, and what follows from it."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Instance, Member, MemberOperationRequest, Role
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus
from gpuaas_contract.operations import (
    DEADLINES_S,
    EVIDENCE_FRESH_FOR_S,
    GOALS,
    INSTANCE_KINDS,
    Evidence,
    Operation,
    OperationKind,
    Target,
)

from gpuaas_platform.policy import rules as policy_rules

STARTS: dict[str, frozenset[str]] = {
    "drain": frozenset({"ready", "degraded", "draining", "drained"}),
    "resume": frozenset({"draining", "drained", "ready", "degraded"}),
    "remove": frozenset(lifecycles.MEMBER) - lifecycles.GONE_MEMBER,
}
"""Member states from which an operation makes sense."""

_SERVING = frozenset({"ready", "draining", "drained"})


def deadline(manifest: Manifest, kind: OperationKind, now: datetime.datetime) -> datetime.datetime:
    return now + datetime.timedelta(seconds=manifest.deadlines_s.get(kind, DEADLINES_S[kind]))


def check_free(active: Sequence[Operation], kind: OperationKind, member_ids: Iterable[str]) -> None:
    """One operation per member at a time; an operation on the instance excludes all others."""
    wanted = set(member_ids)
    for other in active:
        overlap = wanted & {target.member_id for target in other.targets}
        if kind in INSTANCE_KINDS or other.kind in INSTANCE_KINDS or overlap:
            raise errors.OperationInProgress(
                f"{other.kind} ({other.operation_id}) is {other.status} here.",
                details={"operation_id": other.operation_id, "kind": other.kind},
                fix=f"gpuaas op follow {other.operation_id}",
            )


def check_policy(layers: policy_rules.Layers, instances: int, placement: Mapping[str, Sequence[str]]) -> None:
    """One more instance in the project, with a member per placed allocation."""
    policy_rules.check_limit(layers, "instances_max", present=instances, asked=1)
    check_members_max(layers, 0, sum(len(allocation_ids) for allocation_ids in placement.values()))


def check_members_max(layers: policy_rules.Layers, present: int, asked: int) -> None:
    policy_rules.check_limit(layers, "members_per_instance_max", present=present, asked=asked)


def check_member_request(
    manifest: Manifest, instance: Instance, members: Sequence[Member], request: MemberOperationRequest
) -> str:
    """Whether this member operation may be asked for; returns the role it is about."""
    if instance.status not in ("running", "degraded"):
        raise errors.Conflict(f"The instance is {instance.status}; members change only while it runs.")
    component_key = request.component_key or _role_of(members, request)
    role = next((role for role in manifest.roles if role.component_key == component_key), None)
    if role is None:
        known = ", ".join(found.component_key for found in manifest.roles)
        raise errors.ValidationFailed(f"There is no role {component_key!r}; there is {known}.")
    if request.kind not in role.operations:
        raise errors.Conflict(
            f"{manifest.display_name} has no {request.kind} for {component_key}.",
            details={"component_key": component_key, "operations": role.operations},
        )
    live = [member for member in live_members(members) if member.component_key == component_key]
    if request.kind == "add":
        _check_count(role.max, len(live) + len(request.allocation_ids), component_key, "at the most")
        _check_new_allocations(live, request)
    else:
        _check_members(live, request)
    if request.kind == "remove" and len(live) - len(request.member_ids) < role.min:
        raise errors.Conflict(
            f"At least {role.min} {component_key} must stay.", fix=f"gpuaas decommission {instance.name}"
        )
    return component_key


def live_members(members: Iterable[Member]) -> list[Member]:
    return [member for member in members if member.status not in lifecycles.GONE_MEMBER]


def check_holder(operation: Operation, epoch: int) -> None:
    """A report counts only with the newest epoch and while the operation is open."""
    if epoch != operation.epoch or operation.lease is None:
        raise errors.LeaseLost(
            f"Epoch {epoch} is not the newest of {operation.operation_id} ({operation.epoch}).",
            details={"operation_id": operation.operation_id, "epoch": operation.epoch},
        )
    if operation.status != "running":
        raise errors.LeaseLost(f"{operation.operation_id} is {operation.status}.")


def check_member_report(
    operation: Operation, member: Member, status: MemberStatus, evidence: Evidence | None, now: datetime.datetime
) -> None:
    if member.member_id not in {target.member_id for target in operation.targets}:
        raise errors.Conflict(f"{operation.operation_id} is not about member {member.member_id}.")
    if not lifecycles.may_move(lifecycles.MEMBER, member.status, status):
        raise errors.Conflict(f"A member cannot go from {member.status} to {status}.")
    if status == member.status or operation.force or not member.was_ready:
        return
    if status == "removed" and not _shows_idle(evidence, now):
        raise errors.EvidenceRequired(
            "Only a fresh observation that the member is idle allows its removal.",
            details={"evidence": evidence.state if evidence else "missing"},
        )
    if status == "tombstoned":
        raise errors.EvidenceRequired("A member that has run work is given up only by force, with a reason.")


def outcome(operation: Operation, status: MemberStatus, reason: str, target: Target) -> tuple[str, str]:
    """What a member's new status means for its target in the operation: outcome and error."""
    if status in GOALS[operation.kind]:
        return "succeeded", ""
    if status == "failed":
        return "failed", reason
    return target.outcome, target.error


def check_complete(operation: Operation, members: Sequence[Member]) -> None:
    goal = GOALS[operation.kind]
    wrong = {member.member_id: member.status for member in members if member.status not in goal}
    if wrong:
        said = ", ".join(f"{member_id} is {status}" for member_id, status in wrong.items())
        raise errors.Conflict(
            f"{operation.kind} is not done: {said}; each must be {' or '.join(sorted(goal))}.",
            details={"members": wrong},
        )


def instance_status(
    present: InstanceStatus, operation: Operation, succeeded: bool, members: Sequence[Member]
) -> InstanceStatus:
    """The instance's status after an operation ended."""
    if operation.kind == "decommission":
        return "deleted" if succeeded else "failed"
    if operation.kind == "deploy" and not succeeded:
        return "failed"
    if present not in ("deploying", "running", "degraded"):
        return present
    return "running" if all(member.status in _SERVING for member in live_members(members)) else "degraded"


def roles(manifest: Manifest, members: Sequence[Member]) -> list[Role]:
    found = []
    for role in manifest.roles:
        live = [member for member in live_members(members) if member.component_key == role.component_key]
        ready = sum(member.status == "ready" for member in live)
        failed = sum(member.status == "failed" for member in live)
        found.append(
            Role(
                component_key=role.component_key,
                desired=len(live),
                current=len(live) - failed,
                ready=ready,
                health=_health(len(live), ready, failed),
            )
        )
    return found


def _role_of(members: Sequence[Member], request: MemberOperationRequest) -> str:
    keys = {member.component_key for member in members if member.member_id in request.member_ids}
    if len(keys) > 1:
        raise errors.ValidationFailed("The members have different roles; send one operation per role.")
    return next(iter(keys), "")


def _check_count(limit: int, asked: int, component_key: str, word: str) -> None:
    if asked > limit:
        raise errors.Conflict(f"There can be {limit} {component_key} {word}; this would make {asked}.")


def _check_new_allocations(live: Sequence[Member], request: MemberOperationRequest) -> None:
    if not request.allocation_ids or request.member_ids:
        raise errors.ValidationFailed("add names allocation_ids (one or more) and no member_ids.")
    if len(set(request.allocation_ids)) != len(request.allocation_ids):
        raise errors.ValidationFailed("An allocation is named twice.")
    taken = {member.allocation_id: member.member_id for member in live}
    for allocation_id in request.allocation_ids:
        if allocation_id in taken:
            raise errors.Conflict(f"{allocation_id} carries member {taken[allocation_id]} already.")


def _check_members(live: Sequence[Member], request: MemberOperationRequest) -> None:
    if not request.member_ids or request.allocation_ids:
        raise errors.ValidationFailed(f"{request.kind} names member_ids (one or more) and no allocation_ids.")
    by_id = {member.member_id: member for member in live}
    for member_id in request.member_ids:
        member = by_id.get(member_id)
        if member is None:
            raise errors.NotFound(f"There is no member {member_id} of that role in this instance.")
        if member.status not in STARTS[request.kind]:
            raise errors.Conflict(f"Member {member_id} is {member.status}; {request.kind} has no meaning there.")


def _shows_idle(evidence: Evidence | None, now: datetime.datetime) -> bool:
    if evidence is None or evidence.state != "idle":
        return False
    return abs((now - evidence.observed_at).total_seconds()) <= EVIDENCE_FRESH_FOR_S


def _health(desired: int, ready: int, failed: int) -> Literal["healthy", "degraded", "failed", "empty"]:
    if desired == 0:
        return "empty"
    if ready == desired:
        return "healthy"
    return "failed" if failed == desired else "degraded"
