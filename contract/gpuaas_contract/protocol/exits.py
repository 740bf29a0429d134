"""Decide which exits an operation has now, and what each one does to it."""

import datetime
from collections.abc import Mapping

from msgspec.structs import replace

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import ASKING_KINDS, GOALS, UNDONE, ExitName, Operation, Target

MEANINGS: dict[ExitName, str] = {
    "retry": "take it up again; steps that succeeded are not repeated",
    "cancel": "stop it and have it undone",
    "compensate": "have the half-done work undone",
    "force_complete": "declare it done as it is; nothing is done on any machine",
    "tombstone": "give up the members that cannot be recovered",
}
_OPEN = frozenset({"accepted", "running", "cancelling"})


def legal(operation: Operation, members: Mapping[str, Member]) -> list[ExitName]:
    """`members` are those it concerns. A failed one that later ones have passed over has no way out, and needs none."""
    found: list[ExitName] = []
    if operation.status in ("accepted", "running") and not operation.compensating and _can_cancel(operation):
        found.append("cancel")
    if operation.status == "failed" and not _passed_over(operation, members):
        left = [member for member in members.values() if member.status not in lifecycles.GONE_MEMBER]
        if left or operation.kind in ASKING_KINDS:
            found.append("retry")
        if left and operation.kind in UNDONE:
            found.append("compensate")
        if left:
            found.append("tombstone")
    if operation.kind not in ASKING_KINDS and (operation.status in _OPEN or "retry" in found):
        found.append("force_complete")
    return found


def check(operation: Operation, members: Mapping[str, Member], wanted: ExitName) -> None:
    ways = legal(operation, members)
    if wanted not in ways:
        raise errors.ExitUnavailable(
            f"{operation.kind} is {operation.status}; there is no {wanted} from here.",
            details={"status": operation.status, "exits": ways},
        )


def reopened(
    operation: Operation, members: Mapping[str, Member], deadline_at: datetime.datetime, *, compensating: bool
) -> Operation:
    """Accepted once more: with everything that is not done, or, to be undone, with everything that is still there."""
    targets = []
    for target in operation.targets:
        gone = members[target.member_id].status in lifecycles.GONE_MEMBER
        if not gone and (compensating or target.outcome != "succeeded"):
            target = replace(target, outcome="pending", error="")
        targets.append(target)
    return replace(
        operation,
        status="accepted",
        targets=targets,
        compensating=compensating,
        error=None,
        deadline_at=deadline_at,
        ended_at=None,
    )


def forced_status(operation: Operation, target: Target, member: Member) -> MemberStatus | None:
    """Where a forced end leaves a member. Nobody has seen it, so it never counts as ready or as cleanly removed."""
    goal = UNDONE[operation.kind] if operation.compensating else GOALS[operation.kind]
    if target.outcome in ("succeeded", "skipped") or member.status in goal | lifecycles.GONE_MEMBER:
        return None
    if "tombstoned" in goal:
        return "tombstoned"
    if member.status == "removing":
        return "failed"
    return "drained" if "drained" in goal and member.status in ("ready", "degraded", "draining") else "degraded"


def _can_cancel(operation: Operation) -> bool:
    """What nobody has begun can always be cancelled; later only what can be undone."""
    return operation.attempts == 0 or operation.kind in UNDONE or operation.kind in ASKING_KINDS


def _passed_over(operation: Operation, members: Mapping[str, Member]) -> bool:
    return any(
        member.last_operation_id != operation.operation_id
        for member in members.values()
        if member.status not in lifecycles.GONE_MEMBER
    )
