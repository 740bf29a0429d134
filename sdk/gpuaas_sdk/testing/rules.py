"""What the platform lets a controller report and what follows from it. Pure; `records` asks before each change.

Written again, not shared: the platform's own rules must not have to live in what apps install. The same conformance
tests hold both to one behaviour."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from gpuaas_contract import lifecycles
from gpuaas_contract.errors import (
    Conflict,
    EvidenceBusy,
    EvidenceMissing,
    EvidenceRequired,
    EvidenceStale,
    EvidenceUnknown,
    IllegalMove,
    MemberHeld,
    OperationUnfinished,
)
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import Baseline, Condition, Instance, Member
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus, OperationStatus
from gpuaas_contract.operations import (
    ASKING_KINDS,
    CLOCKS_APART_S,
    EVIDENCE_FRESH_FOR_S,
    GOALS,
    UNDONE,
    Evidence,
    FailureClass,
    Operation,
    OperationError,
    Target,
)
from gpuaas_contract.runtime import ObservedMember, ReportMember
from msgspec.structs import replace

_STATUS_WHILE: dict[str, InstanceStatus] = {
    "deploy": "deploying",
    "upgrade": "upgrading",
    "rollback": "rolling_back",
    "stop": "stopping",
    "start": "starting",
    "restart": "starting",
    "decommission": "deleting",
}
_STATUS_AFTER: dict[Baseline, InstanceStatus] = {
    "new": "requested",
    "stopped": "stopped",
    "failed": "failed",
    "deleted": "deleted",
}
LAST_OPERATION = "LastOperationSucceeded"
"""The condition the platform itself keeps; controllers say all others."""
RefusalCode = Literal["not_found", "stale", "operation_in_progress", "illegal_move"]
_SEEN_BETWEEN_OPERATIONS = frozenset({"ready", "degraded", "draining", "drained", "failed"})


class Ending(NamedTuple):
    status: OperationStatus
    targets: list[Target]
    error: OperationError | None = None


def check_member_report(operation: Operation, member: Member, report: ReportMember, now: datetime.datetime) -> None:
    target = target_of(operation, member.member_id)
    if target is None:
        raise Conflict(f"The operation is not about member {member.member_id}.")
    if target.outcome == "skipped":
        raise Conflict(f"Member {member.member_id} was skipped: {target.error}")
    if not lifecycles.may_move(lifecycles.MEMBER, member.status, report.status):
        raise _illegal_move(member, report.status, lifecycles.allowed(lifecycles.MEMBER, member.status))
    moves_on = operation.kind == "replace" and not operation.compensating
    if (member.status, report.status) == ("removing", "provisioning") and not moves_on:
        moves = [move for move in lifecycles.allowed(lifecycles.MEMBER, member.status) if move != report.status]
        raise _illegal_move(member, report.status, moves, "Only a replace that is not being undone moves a member on.")
    if operation.force or not member.was_ready:
        return
    leaves = member.status != "removing" and report.status in ("removing", "removed")
    if leaves and (missing := evidence_gap(report.evidence, now)):
        raise missing
    if report.status == "tombstoned":
        raise EvidenceMissing("A member that has run work is given up only by force, with a reason.")


def check_holds(operation: Operation, member: Member, status: MemberStatus, standing: Iterable[Hold]) -> None:
    """A hold counts at the step it forbids, also when it was placed after the request."""
    goes = status in ("removing", "removed") and member.status not in ("removing", status)
    comes = status == "ready" and member.status in ("draining", "drained")
    removal = goes and operation.kind in ("remove", "replace", "decommission")
    forbidden = "no_removal" if removal else "no_work" if comes and operation.kind == "resume" else ""
    hold = next((one for one in standing if (one.member_id, one.kind) == (member.member_id, forbidden)), None)
    if hold is not None and not operation.force:
        raise MemberHeld(f"{hold.owner} holds {hold.member_id}: {hold.reason}", details={"hold_id": hold.hold_id})


def evidence_gap(evidence: Evidence | None, now: datetime.datetime) -> EvidenceRequired | None:
    if evidence is None:
        return EvidenceMissing()
    if not -CLOCKS_APART_S <= (now - evidence.observed_at).total_seconds() <= EVIDENCE_FRESH_FOR_S:
        return EvidenceStale()
    if evidence.state == "busy" or evidence.running_work:
        return EvidenceBusy(evidence.detail)
    return None if evidence.state == "idle" else EvidenceUnknown(evidence.detail)


def noted(operation: Operation, member: Member, evidence: Evidence | None) -> list[Target]:
    """The targets after a report on this member."""
    return [
        _noted(operation, replace(target, evidence=evidence or target.evidence), member)
        if target.member_id == member.member_id
        else target
        for target in operation.targets
    ]


def to_skip(operation: Operation, members: Mapping[str, Member]) -> list[str]:
    """Whom the stop rule leaves out: enough targets failed, and nobody has begun with these."""
    failed = sum(target.outcome == "failed" for target in operation.targets)
    if not 0 < operation.stop_after_failures <= failed:
        return []
    begun = {step.member_id for step in operation.steps}
    if operation.kind == "add":
        begun |= {member_id for member_id, member in members.items() if member.status != "requested"}
    return [
        target.member_id
        for target in operation.targets
        if target.outcome == "pending" and target.member_id not in begun
    ]


def ending(operation: Operation, members: Mapping[str, Member], *, undone: bool) -> Ending:
    """What "complete" makes of the operation. `undone` is the controller's word that it turned back."""
    if operation.kind in ASKING_KINDS:
        answered = operation.result is not None or operation.preview is not None
        return Ending("cancelled" if operation.status == "cancelling" and not answered else "succeeded", [])
    backs_out = operation.compensating or operation.status == "cancelling"
    targets = [_ended(operation, target, members[target.member_id], undone=undone) for target in operation.targets]
    left = {target.member_id: members[target.member_id].status for target in targets if target.outcome == "pending"}
    if left:
        said = ", ".join(f"{member_id} is {status}" for member_id, status in left.items())
        wanted = sorted(UNDONE[operation.kind] if operation.compensating else GOALS[operation.kind])
        raise OperationUnfinished(
            f"{operation.kind} is not done: {said}; each must be {' or '.join(wanted)}, or failed.",
            details={"members": left, "wanted": wanted},
        )
    if not operation.compensating and all(target.outcome == "succeeded" for target in targets):
        return Ending("succeeded", targets)
    if backs_out:
        return Ending("cancelled", targets)
    failed = sum(target.outcome == "failed" for target in targets)
    return Ending("failed", targets, failure("targets_failed", f"{failed} of {len(targets)} failed.", "repairable"))


def with_late_cancel(operation: Operation, status: OperationStatus) -> Operation:
    if operation.status != "cancelling" or status != "succeeded":
        return operation
    *before, cancel = operation.exits_taken
    return replace(operation, exits_taken=[*before, replace(cancel, too_late=True)])


def failure(code: str, message: str, failure_class: FailureClass, fix: str = "") -> OperationError:
    retryable = failure_class in ("retryable", "drift", "expired") or code == "targets_failed"
    return OperationError(code=code, message=message, failure_class=failure_class, retryable=retryable, fix=fix)


def reopened(operation: Operation, members: Mapping[str, Member], *, compensating: bool) -> list[Target]:
    """Targets of a failed operation that is taken up again, or is to be undone."""
    return [
        replace(target, outcome="pending", error="")
        if members[target.member_id].status not in lifecycles.GONE_MEMBER
        and (compensating or target.outcome != "succeeded")
        else target
        for target in operation.targets
    ]


def baseline_after(present: Baseline, operation: Operation) -> Baseline:
    if operation.status == "succeeded":
        left: dict[str, Baseline] = {"stop": "stopped", "decommission": "deleted"}
        return left.get(operation.kind, "up")
    if operation.status == "failed":
        return present if operation.kind in ("upgrade", "rollback") else "failed"
    return "failed" if operation.kind == "deploy" else present


def instance_status(instance: Instance, active: Operation | None, members: Sequence[Member]) -> InstanceStatus:
    """`active` is the operation on the whole instance; `members` are the live ones."""
    if active is not None:
        return _STATUS_WHILE[active.kind]
    if instance.baseline != "up":
        return _STATUS_AFTER[instance.baseline]
    unsound = any(member.status in ("degraded", "failed") for member in members)
    return "degraded" if unsound or any(found.status != "true" for found in instance.conditions) else "running"


def merged(present: Sequence[Condition], reported: Sequence[Condition]) -> list[Condition]:
    """Conditions by type; what is only said again stays as it is."""
    by_type = {condition.type: condition for condition in present}
    for condition in reported:
        before = by_type.get(condition.type)
        if before is None or before.status != condition.status:
            by_type[condition.type] = condition
        elif (before.reason, before.message) != (condition.reason, condition.message):
            by_type[condition.type] = replace(condition, changed_at=before.changed_at)
    return [by_type[name] for name in sorted(by_type)]


def may_be_seen(member: Member, observed: ObservedMember) -> bool:
    """Nothing comes or goes without an operation."""
    if member.status == observed.status:
        return True
    both = {member.status, observed.status} <= _SEEN_BETWEEN_OPERATIONS
    return both and lifecycles.may_move(lifecycles.MEMBER, member.status, observed.status)


def target_of(operation: Operation, member_id: str) -> Target | None:
    return next((target for target in operation.targets if target.member_id == member_id), None)


def _illegal_move(member: Member, status: MemberStatus, allowed: list[str], why: str = "") -> IllegalMove:
    return IllegalMove(
        why or f"A member cannot go from {member.status} to {status}.",
        details={"member_id": member.member_id, "from": member.status, "to": status, "allowed": allowed},
    )


def _noted(operation: Operation, target: Target, member: Member) -> Target:
    if _at_goal(operation, target, member):
        return replace(target, outcome="succeeded", error="")
    if member.status == "failed":
        return replace(target, outcome="failed", error=member.status_reason)
    return replace(target, outcome="pending", error="") if target.outcome == "failed" else target


def _ended(operation: Operation, target: Target, member: Member, *, undone: bool) -> Target:
    """Still pending: neither done, failed nor undone."""
    gone = member.status in lifecycles.GONE_MEMBER
    backs_out = operation.compensating or operation.status == "cancelling"
    if _is_done(operation, target, member, undone=undone):
        return replace(target, outcome="succeeded", error="")
    if backs_out and (gone or member.status in UNDONE.get(operation.kind, ())):
        return replace(target, outcome="cancelled", error="")
    if target.outcome == "skipped":
        return target
    if gone or (member.status == "failed" and not backs_out):
        return replace(target, outcome="failed")
    return replace(target, outcome="pending")


def _is_done(operation: Operation, target: Target, member: Member, *, undone: bool) -> bool:
    """At the goal. Where a cancelled operation looks the same when it was undone, its controller says which it is."""
    if operation.compensating or not _at_goal(operation, target, member):
        return False
    looks_undone = operation.kind != "replace" and member.status in UNDONE.get(operation.kind, ())
    return not (undone and looks_undone and operation.status == "cancelling")


def _at_goal(operation: Operation, target: Target, member: Member) -> bool:
    """A member that is replaced is where it should be only on its new machine."""
    moved = operation.kind != "replace" or member.allocation_id == target.allocation_id
    return moved and member.status in GOALS[operation.kind]
