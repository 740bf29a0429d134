"""Decide how an operation ends: its status, and the outcome of each target."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec.structs import replace

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus, OperationStatus
from gpuaas_contract.operations import ASKING_KINDS, GOALS, UNDONE, FailureClass, Operation, OperationError, Target
from gpuaas_contract.protocol.report import at_goal, is_kept, status_after_refusal

_UNFINISHED = frozenset({"requested", "provisioning", "joining", "removing"})
"""Statuses in which a member cannot stay once its operation has ended, unless the operation was refused."""
_CREATING = frozenset({"deploy", "add", "replace"})
_STANDING = frozenset({"requested", "ready", "degraded", "draining", "drained"})
"""Statuses to which an undo may return a member that had them before."""


class Ending(NamedTuple):
    status: OperationStatus
    targets: list[Target]
    error: OperationError | None = None


def ending(operation: Operation, members: Mapping[str, Member], *, undone: bool = False) -> Ending:
    """Return how an operation ends when its controller completes it. Refuse while a target is still open.

    `undone`: the controller reports that it undid the work; needed if the status of the members cannot show this."""
    if operation.kind in ASKING_KINDS:
        answered = operation.result is not None or operation.preview is not None
        backed_out = operation.status == "cancelling" and not answered
        return Ending("cancelled" if backed_out else "succeeded", operation.targets)
    goal, way_back = GOALS[operation.kind], UNDONE.get(operation.kind, frozenset())
    backing_out = operation.compensating or operation.status == "cancelling"
    targets, open_members = [], {}
    for target in operation.targets:
        member = members[target.member_id]
        status = member.status
        if _is_done(operation, target, member, undone=undone):
            target = replace(target, outcome="succeeded", error="")
        elif backing_out and (status in way_back | lifecycles.GONE_MEMBER or _is_as_before(operation, target, status)):
            target = replace(target, outcome="cancelled", error="")
        elif target.outcome in ("skipped", "refused") or (target.outcome == "cancelled" and not backing_out):
            pass
        elif status in lifecycles.GONE_MEMBER or (status == "failed" and not backing_out):
            target = replace(target, outcome="failed")
        else:
            open_members[target.member_id] = status
        targets.append(target)
    if open_members:
        wanted = sorted(way_back if operation.compensating else goal)
        where = " on its new machine" if operation.kind == "replace" and not operation.compensating else ""
        summary = ", ".join(f"{member_id} is {status}" for member_id, status in open_members.items())
        raise errors.OperationUnfinished(
            f"{operation.kind} is not done: {summary}; each must be {' or '.join(wanted)}{where}, or failed.",
            details={"members": open_members, "wanted": wanted},
        )
    # Without an undo, `cancelled` means that people gave the member up, so it is not a part of the work any more.
    counted = [target for target in targets if backing_out or target.outcome != "cancelled"]
    if all(target.outcome == "succeeded" for target in counted) and not operation.compensating:
        return Ending("succeeded", targets)
    return Ending("cancelled", targets) if backing_out else Ending("failed", targets, _partial(targets))


def with_late_cancel(operation: Operation, status: OperationStatus) -> Operation:
    """Mark the last cancel as too late if the operation succeeded in spite of it."""
    if operation.status != "cancelling" or status != "succeeded":
        return operation
    *before, cancel = operation.exits_taken
    return replace(operation, exits_taken=[*before, replace(cancel, too_late=True)])


def failure(code: str, message: str, failure_class: FailureClass, fix: str = "") -> OperationError:
    """Return the error of an operation that failed as a whole."""
    retryable = failure_class in ("retryable", "drift", "expired")
    return OperationError(code=code, message=message, failure_class=failure_class, retryable=retryable, fix=fix)


def failure_class_of(operation: Operation, reported: FailureClass) -> FailureClass:
    """Return the class with which an operation fails. An undo cannot be refused: its work is already half done."""
    backing_out = operation.compensating or operation.status == "cancelling"
    return "repairable" if reported == "refused" and backing_out else reported


def is_refusal(error: OperationError | None) -> bool:
    """Return whether the controller refused the operation before it changed anything."""
    return error is not None and error.failure_class == "refused"


def closed_targets(end: Ending) -> list[Target]:
    """Return the targets after the end: a pending target becomes `cancelled`, `failed` or `refused`, like the
    operation."""
    outcome: Literal["cancelled", "failed", "refused"] = "cancelled" if end.status == "cancelled" else "failed"
    if is_refusal(end.error):
        outcome = "refused"
    why = end.error.message if end.error else ""
    return [
        replace(target, outcome=outcome, error=target.error or why) if target.outcome == "pending" else target
        for target in end.targets
    ]


def left_behind(ended: Operation, target: Target, member: Member) -> tuple[MemberStatus, str] | None:
    """Return new status and reason of a member that its operation left unfinished; None if its status is kept."""
    if target.outcome == "failed" and member.status in _UNFINISHED:
        return "failed", target.error
    if target.outcome == "refused":
        status = status_after_refusal(target, member)
        if status in _UNFINISHED and status != target.status_before:
            return "failed", target.error
        return (status, "") if status != member.status else None
    if target.outcome == "cancelled" and member.status == "requested":
        return "removed", f"the {ended.kind} was cancelled"
    return None


def _is_done(operation: Operation, target: Target, member: Member, *, undone: bool) -> bool:
    """Return whether the target is at its goal and was not undone; for some kinds only `undone` shows this."""
    if operation.compensating or not at_goal(operation, target, member):
        return False
    looks_undone = operation.kind != "replace" and member.status in UNDONE.get(operation.kind, ())
    looks_undone = looks_undone or is_kept(operation.kind, target, member)
    return not (undone and looks_undone and operation.status == "cancelling")


def _is_as_before(operation: Operation, target: Target, status: MemberStatus) -> bool:
    """Return whether the member has the status of before, and may keep it. One that failed to join may not; one that
    failed on its old machine and was not moved may."""
    is_unmoved = operation.kind == "replace" and not target.previous_allocation_id
    may_stay = status in _STANDING or (status == "failed" and (operation.kind not in _CREATING or is_unmoved))
    return status == target.status_before and may_stay


def _partial(targets: Sequence[Target]) -> OperationError:
    names = ("succeeded", "failed", "skipped", "refused")
    counts = {name: sum(target.outcome == name for target in targets) for name in names}
    if counts["refused"] and not counts["failed"] and not counts["skipped"]:
        why = "; ".join(target.error for target in targets if target.outcome == "refused")
        return failure("refused", why, "refused", "Do what the error of each target requires, then retry.")
    summary = f"{counts['succeeded']} of {len(targets)} done, {counts['failed']} failed"
    if counts["refused"]:
        summary += f", {counts['refused']} refused"
    if counts["skipped"]:
        summary += f", {counts['skipped']} not started because of the stop rule"
    return OperationError(
        code="targets_failed",
        message=f"{summary}.",
        failure_class="repairable",
        retryable=True,
        fix="See the error of each target, repair, then retry; or remove the failed members.",
    )
