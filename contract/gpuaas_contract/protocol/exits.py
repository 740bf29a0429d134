"""Decide which exits an operation has now, and what each one does to it."""

import datetime
from collections.abc import Mapping

from msgspec.structs import replace

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import ASKING_KINDS, UNDONE, ExitName, Operation, Target
from gpuaas_contract.protocol import report

MEANINGS: dict[ExitName, str] = {
    "retry": "take it up again; steps that succeeded are not repeated",
    "cancel": "stop it and have it undone",
    "compensate": "have the half-done work undone",
    "force_complete": "declare it done as it is; nothing is done on any machine",
    "tombstone": "give up the members that cannot be recovered",
}
_OPEN = frozenset({"accepted", "running", "cancelling"})


def legal(operation: Operation, members: Mapping[str, Member]) -> list[ExitName]:
    """Return the exits that are possible now. `members` are the members of its targets. A failed operation has no exit
    if a member has had a later operation."""
    exits: list[ExitName] = []
    # Before the first claim, every operation can be cancelled; after it, only one that can be undone.
    stoppable = operation.attempts == 0 or operation.kind in UNDONE or operation.kind in ASKING_KINDS
    if operation.status in ("accepted", "running") and not operation.compensating and stoppable:
        exits.append("cancel")
    left = [member for member in members.values() if member.status not in lifecycles.GONE_MEMBER]
    passed_over = any(member.last_operation_id != operation.operation_id for member in left)
    if operation.status == "failed" and not passed_over:
        if left or operation.kind in ASKING_KINDS:
            exits.append("retry")
        if left and operation.kind in UNDONE:
            exits.append("compensate")
        if left:
            exits.append("tombstone")
    if operation.kind not in ASKING_KINDS and (operation.status in _OPEN or "retry" in exits):
        exits.append("force_complete")
    return exits


def check(operation: Operation, members: Mapping[str, Member], wanted: ExitName) -> None:
    exits = legal(operation, members)
    if wanted not in exits:
        raise errors.ExitUnavailable(
            f"{operation.kind} is {operation.status}; {wanted} is not possible now.",
            details={"status": operation.status, "exits": exits},
        )


def reopened(
    operation: Operation, members: Mapping[str, Member], deadline_at: datetime.datetime, *, compensating: bool
) -> Operation:
    """Return the operation as accepted again, for the targets that did not succeed; to undo it, for all that exist."""
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
    """Return a member's status after a forced end; None keeps it. Never `ready` or `removed`: both must be observed."""
    goal = UNDONE[operation.kind] if operation.compensating else report.goal(operation.kind, target)
    if target.outcome in ("succeeded", "skipped") or member.status in goal | lifecycles.GONE_MEMBER:
        return None
    if "tombstoned" in goal:
        return "tombstoned"
    if member.status == "removing":
        return "failed"
    return "drained" if "drained" in goal and member.status in ("ready", "degraded", "draining") else "degraded"
