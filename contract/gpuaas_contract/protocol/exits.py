"""Decide which exits an operation has now, and what each one does to it."""

import datetime
from collections.abc import Mapping

from msgspec.structs import replace

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import MemberStatus
from gpuaas_contract.operations import ASKING_KINDS, INSTANCE_KINDS, UNDONE, ExitName, Operation, Target
from gpuaas_contract.protocol import end, report

MEANINGS: dict[ExitName, str] = {
    "retry": "run it again; steps that succeeded are not repeated, unless a member was repaired since",
    "cancel": "stop it and undo what it did",
    "compensate": "undo the work that is half done",
    "force_complete": "declare it done as it is; nothing is done on any machine",
    "tombstone": "give up the members that cannot be recovered",
}
REFUSED_MEANINGS: dict[ExitName, str] = {
    "retry": "run it again when the cause of the refusal is gone; without it, nothing needs to be done",
    "force_complete": "declare it done although it was refused; nothing is done on any machine",
}
"""After a refusal, people must not read that the work is half done or that they have to choose an exit."""
STOPPABLE = ASKING_KINDS | {"repair"}
"""Kinds that a controller can stop without an undo. A repair that stopped halfway leaves its members as they are, and
the next repair does all of it again."""
_OPEN = frozenset({"accepted", "running", "cancelling"})
_CREATING = frozenset({"deploy", "add"})
"""Kinds whose members did not exist before."""
SUPERSEDES_NOTHING = ASKING_KINDS | {"repair"}
"""Kinds after which a failed operation of `KEEPS_EXITS` keeps its exits: the app requests repairs, and people repair a
machine before they retry."""
KEEPS_EXITS = INSTANCE_KINDS | {"replace"}
"""Kinds that a repair does not supersede. What a failed `replace` has left on the new machine, only that replace can
finish or take back."""


def legal(operation: Operation, members: Mapping[str, Member], *, superseded: bool = True) -> list[ExitName]:
    """Return the exits that are possible now. `members` are the members of its targets. A failed operation has no exit
    if a member has had a later operation; one of `KEEPS_EXITS` only if `superseded`, see `SUPERSEDES_NOTHING`."""
    exits: list[ExitName] = []
    # Before the first claim, every operation can be cancelled; after it, only one that can be undone or just stopped.
    can_undo = operation.kind in UNDONE and operation.can_undo
    stoppable = operation.attempts == 0 or can_undo or operation.kind in STOPPABLE
    if operation.status in ("accepted", "running") and not operation.compensating and stoppable:
        exits.append("cancel")
    left = [member for member in members.values() if member.status not in lifecycles.GONE_MEMBER]
    passed_over = has_later(operation, members) and (superseded or operation.kind not in KEEPS_EXITS)
    if operation.status == "failed" and not passed_over:
        refused = end.is_refusal(operation.error)
        # Nothing of a refused action is left to continue: people run it again, perhaps with other inputs.
        if not refused if operation.kind in ASKING_KINDS else _has_work_left(operation, members):
            exits.append("retry")
        if left and can_undo and not refused:
            exits.append("compensate")
        if left and (not refused or operation.kind in _CREATING):
            exits.append("tombstone")
    if operation.kind not in ASKING_KINDS and (operation.status in _OPEN or "retry" in exits):
        exits.append("force_complete")
    return exits


def meaning(operation: Operation, name: ExitName) -> str:
    """Return what the exit does to this operation."""
    if name == "cancel" and operation.kind == "repair" and not operation.can_undo:
        return "stop it; nothing is undone, the members stay as they are"
    if operation.kind not in _CREATING and end.is_refusal(operation.error) and name in REFUSED_MEANINGS:
        return REFUSED_MEANINGS[name]
    return MEANINGS[name]


def has_later(operation: Operation, members: Mapping[str, Member]) -> bool:
    """Return whether a member has had a later operation."""
    left = [member for member in members.values() if member.status not in lifecycles.GONE_MEMBER]
    return any(member.last_operation_id != operation.operation_id for member in left)


def _has_work_left(operation: Operation, members: Mapping[str, Member]) -> bool:
    """Return whether a retry has something to do. An operation on the whole instance must be confirmed by its
    controller, even if the only members that failed are gone."""
    live = {member_id for member_id, member in members.items() if member.status not in lifecycles.GONE_MEMBER}
    unfinished = {target.member_id for target in operation.targets if target.outcome != "succeeded"}
    all_gone = bool(unfinished) and not unfinished & live
    return bool(live) and (operation.kind in INSTANCE_KINDS or not all_gone)


def check(operation: Operation, members: Mapping[str, Member], wanted: ExitName, *, superseded: bool = True) -> None:
    exits = legal(operation, members, superseded=superseded)
    if wanted in exits:
        return
    message = f"{operation.kind} is {operation.status}; {wanted} is not possible now"
    details: dict[str, object] = {"status": operation.status, "exits": exits}
    if wanted == "cancel" and operation.status in ("accepted", "running") and not operation.compensating:
        raise errors.ExitUnavailable(
            f"{message}: the app's controller cannot undo a {operation.kind} that it has started.",
            details=details,
            fix=f"Wait for its end: gpuaas op follow {operation.operation_id}. If no controller can finish it: "
            f"gpuaas op force-complete {operation.operation_id} --reason TEXT.",
        )
    raise errors.ExitUnavailable(f"{message}.", details=details, fix=_what_is_possible(operation, exits))


def _what_is_possible(operation: Operation, exits: list[ExitName]) -> str:
    if exits:
        names = (name.replace("_", "-") for name in exits)
        return "Possible now: " + ", ".join(
            f"gpuaas op {name} {operation.operation_id} --reason TEXT" for name in names
        )
    if operation.status == "failed":
        return (
            "It needs no exit: nothing of it is left to continue, or its members had a later operation. Request what "
            f"you still need again. The state now: gpuaas describe instance {operation.instance_id}"
        )
    return "It has no exits now. To change the instance, request another operation."


def reopened(
    operation: Operation, members: Mapping[str, Member], deadline_at: datetime.datetime, *, compensating: bool
) -> Operation:
    """Return the operation as accepted again, for the targets that did not succeed or had another operation since; to
    undo it, for all that exist."""
    targets = []
    for target in operation.targets:
        member = members[target.member_id]
        gone = member.status in lifecycles.GONE_MEMBER
        done = target.outcome == "succeeded" and member.last_operation_id == operation.operation_id
        if gone and target.outcome != "succeeded" and not compensating:
            target = replace(
                target, outcome="cancelled", error=member.status_reason or f"the member is {member.status}"
            )
        elif not gone and (compensating or not done):
            before = target.status_before if compensating else member.status
            target = replace(target, outcome="pending", error="", status_before=before)
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
    # A repair drains no member.
    drains = "drained" in goal and (operation.kind != "repair" or target.status_before in report.DRAINED)
    return "drained" if drains and member.status in ("ready", "degraded", "draining") else "degraded"
