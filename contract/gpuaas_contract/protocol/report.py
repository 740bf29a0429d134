"""Decide whether a controller's report is allowed, and what a member's new status means for its operation."""

import datetime
from collections.abc import Mapping

from msgspec.structs import replace

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import (
    CLOCKS_APART_S,
    EVIDENCE_FRESH_FOR_S,
    GOALS,
    JOINING,
    KEEPS_DRAINED,
    KEEPS_STATUS,
    Evidence,
    Operation,
    OperationHead,
    OperationKind,
    Outcome,
    Target,
)
from gpuaas_contract.runtime import ReportMember

DRAINED = frozenset({"draining", "drained"})
"""Statuses of a member that takes no new work, because someone wanted so."""
_UNWELL = frozenset({"degraded", "failed"}) | DRAINED


def check_member_report(
    operation: Operation, member: Member, status: MemberStatus, evidence: Evidence | None, now: datetime.datetime
) -> None:
    target = next((target for target in operation.targets if target.member_id == member.member_id), None)
    if target is None:
        raise errors.Conflict(f"{operation.operation_id} is not about member {member.member_id}.")
    if target.outcome == "skipped":
        raise errors.Conflict(f"Member {member.member_id} was skipped: {target.error}")
    if not lifecycles.may_move(lifecycles.MEMBER, member.status, status):
        raise _illegal_move(member, status, lifecycles.allowed(lifecycles.MEMBER, member.status))
    moves_on = operation.kind == "replace" and not operation.compensating
    if member.status == "removing" and status == "provisioning" and not moves_on:
        moves = [move for move in lifecycles.allowed(lifecycles.MEMBER, member.status) if move != status]
        raise _illegal_move(
            member,
            status,
            moves,
            "A report can move a member to another machine only in a `replace` that is not being undone.",
        )
    if takes_away(member, status) and not operation.force:
        missing = evidence_gap(evidence, now)
        if missing is not None:
            raise missing
    if status == "tombstoned" != member.status and member.was_ready and not operation.force:
        raise errors.EvidenceMissing("A member that has run work is given up only by force, with a reason.")


def evidence_gap(evidence: Evidence | None, now: datetime.datetime) -> errors.EvidenceRequired | None:
    """Return what is missing before a member may be removed; None if the evidence shows that it is idle."""
    if evidence is None:
        return errors.EvidenceMissing(details={"missing": "observation"})
    age_s = (now - evidence.observed_at).total_seconds()
    facts = {"state": evidence.state, "source": evidence.source, "age_s": round(age_s, 1)}
    if not -CLOCKS_APART_S <= age_s <= EVIDENCE_FRESH_FOR_S:
        return errors.EvidenceStale(
            f"The observation is {age_s:.0f} s old; the limit is {EVIDENCE_FRESH_FOR_S} s.",
            details={"missing": "fresh observation", **facts},
        )
    if evidence.state == "busy" or evidence.running_work:
        return errors.EvidenceBusy(evidence.detail, details={"missing": "end of running work", **facts})
    if evidence.state != "idle":
        return errors.EvidenceUnknown(evidence.detail, details={"missing": "readable observation", **facts})
    return None


def takes_away(member: Member, status: MemberStatus) -> bool:
    """Return whether this report starts the removal of a member that may have run work."""
    return member.was_ready and _begins_to_go(member, status)


def meets_holds(operation: OperationHead, member: Member, status: MemberStatus) -> bool:
    """Return whether holds apply to this report: it resumes or removes a member. Holds placed later apply too."""
    if operation.force:
        return False
    if operation.kind == "resume" or operation.kind in KEEPS_DRAINED:
        return status == "ready" and member.status in DRAINED
    return _begins_to_go(member, status)


def hold_kind(operation: OperationHead) -> OperationKind:
    """Return as which kind of operation holds see a report: a repair or an upgrade that gives a drained member work
    resumes it."""
    return "resume" if operation.kind in KEEPS_DRAINED else operation.kind


def goal(kind: OperationKind, target: Target) -> frozenset[str]:
    """Return the statuses in which a target is done. Kinds such as repair and upgrade leave a member drained that was
    drained before. A repair lifts no drain, and a member that failed may have been drained before it did. A reconfigure
    may leave a member as it was."""
    may_stay = kind == "repair" or (kind in KEEPS_DRAINED and target.status_before in DRAINED)
    return GOALS[kind] | _kept(kind, target) | ({"drained"} if may_stay else frozenset())


def is_kept(kind: OperationKind, target: Target, member: Member) -> bool:
    """Return whether the member is unwell as before, and may stay so."""
    return member.status in _kept(kind, target)


def _kept(kind: OperationKind, target: Target) -> frozenset[str]:
    return _UNWELL & {target.status_before or ""} if kind in KEEPS_STATUS else frozenset()


def at_goal(operation: OperationHead, target: Target, member: Member) -> bool:
    """Return whether a member is at the operation's goal; a replaced member only on its new machine."""
    moved = operation.kind != "replace" or member.allocation_id == target.allocation_id
    return moved and member.status in goal(operation.kind, target)


def status_after_refusal(target: Target, member: Member) -> MemberStatus:
    """Return the status of a member for which the operation was refused: the one before, if it can return to it."""
    before = target.status_before or member.status
    return before if lifecycles.may_move(lifecycles.MEMBER, member.status, before) else member.status


def counts_as_failed_join(operation: OperationHead, status: MemberStatus) -> bool:
    """Return whether a member that is now `status` counts for its role's breaker. A join that people stopped does
    not."""
    backs_out = operation.compensating or any(taken.name == "cancel" for taken in operation.exits_taken[-1:])
    return status == "failed" and operation.kind in JOINING and not backs_out


def with_lines(target: Target, report: ReportMember) -> Target:
    """Return the target with the reported lines of its statement; lists that the report omits do not change."""
    removed = target.removed if report.removed is None else list(report.removed)
    left = target.left if report.left is None else list(report.left)
    return replace(target, removed=removed, left=left)


def outcome(
    operation: OperationHead, target: Target, member: Member, refusal: str | None = None
) -> tuple[Outcome, str]:
    """Return the outcome and error of a target that follow from its member's new status, or from the reason of a
    refusal."""
    if refusal is not None:
        return "refused", refusal
    if at_goal(operation, target, member):
        return "succeeded", ""
    if member.status == "failed":
        return "failed", member.status_reason
    return ("pending", "") if target.outcome in ("failed", "refused") else (target.outcome, target.error)


def to_skip(operation: Operation, members: Mapping[str, Member]) -> set[str]:
    """Return the members that the stop rule skips: enough targets failed, and no work on these has started."""
    failed = sum(target.outcome == "failed" for target in operation.targets)
    if not operation.stop_after_failures or failed < operation.stop_after_failures:
        return set()
    begun = {step.member_id for step in operation.steps}
    return {
        target.member_id
        for target in operation.targets
        if target.outcome == "pending"
        and target.member_id not in begun
        and (operation.kind != "add" or members[target.member_id].status == "requested")
    }


def _illegal_move(member: Member, status: MemberStatus, allowed: list[str], why: str = "") -> errors.IllegalMove:
    return errors.IllegalMove(
        why or f"A member cannot go from {member.status} to {status}.",
        details={"member_id": member.member_id, "from": member.status, "to": status, "allowed": allowed},
    )


def _begins_to_go(member: Member, status: MemberStatus) -> bool:
    """Return whether the removal starts now. A member that is `removing` was already checked."""
    return status in ("removing", "removed") and member.status not in ("removing", status)
