"""Pure: may this be reported, and what follows from it for the member, the operation and the instance."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import Baseline, BreakerState, Condition, Instance, Member, Role
from gpuaas_contract.lifecycles import InstanceStatus, MemberStatus, OperationStatus
from gpuaas_contract.operations import (
    ASKING_KINDS,
    CLOCKS_APART_S,
    EVIDENCE_FRESH_FOR_S,
    GOALS,
    UNDONE,
    Evidence,
    Operation,
    OperationError,
    OperationKind,
    Target,
)
from msgspec.structs import replace

from gpuaas_platform.instances.rules import live_members

_UNSOUND = frozenset({"degraded", "failed"})
"""Members on their way in or out are no fault of the instance."""
LAST_OPERATION = "LastOperationSucceeded"
"""The condition the platform itself keeps; controllers say all others."""

STATUS_WHILE: dict[str, InstanceStatus] = {
    "deploy": "deploying",
    "upgrade": "upgrading",
    "rollback": "rolling_back",
    "stop": "stopping",
    "start": "starting",
    "restart": "starting",
    "decommission": "deleting",
}
_LEFT_BY: dict[str, Baseline] = {"stop": "stopped", "decommission": "deleted"}
_SURVIVES_FAILURE = frozenset({"upgrade", "rollback"})
_BASELINE_STATUS: dict[Baseline, InstanceStatus] = {
    "new": "requested",
    "stopped": "stopped",
    "failed": "failed",
    "deleted": "deleted",
}


def check_member_report(
    operation: Operation, member: Member, status: MemberStatus, evidence: Evidence | None, now: datetime.datetime
) -> None:
    target = next((found for found in operation.targets if found.member_id == member.member_id), None)
    if target is None:
        raise errors.Conflict(f"{operation.operation_id} is not about member {member.member_id}.")
    if target.outcome == "skipped":
        raise errors.Conflict(f"Member {member.member_id} was skipped: {target.error}")
    if not lifecycles.may_move(lifecycles.MEMBER, member.status, status):
        raise illegal_move(member, status, lifecycles.allowed(lifecycles.MEMBER, member.status))
    moves_on = operation.kind == "replace" and not operation.compensating
    if member.status == "removing" and status == "provisioning" and not moves_on:
        moves = [move for move in lifecycles.allowed(lifecycles.MEMBER, member.status) if move != status]
        raise illegal_move(member, status, moves, "Only a replace that is not being undone moves a member on.")
    if takes_away(member, status) and not operation.force:
        missing = evidence_gap(evidence, now)
        if missing is not None:
            raise missing
    if status == "tombstoned" != member.status and member.was_ready and not operation.force:
        raise errors.EvidenceMissing("A member that has run work is given up only by force, with a reason.")


def illegal_move(member: Member, status: MemberStatus, allowed: list[str], why: str = "") -> errors.IllegalMove:
    return errors.IllegalMove(
        why or f"A member cannot go from {member.status} to {status}.",
        details={"member_id": member.member_id, "from": member.status, "to": status, "allowed": allowed},
    )


def takes_away(member: Member, status: MemberStatus) -> bool:
    """The step before work or what it left is destroyed."""
    return member.was_ready and _begins_to_go(member, status)


def meets_holds(operation: Operation, member: Member, status: MemberStatus) -> bool:
    """The step that a hold forbids, also one that was placed after the request: into work again, or away."""
    if operation.force:
        return False
    if operation.kind == "resume":
        return status == "ready" and member.status in ("draining", "drained")
    return _begins_to_go(member, status)


def evidence_gap(evidence: Evidence | None, now: datetime.datetime) -> errors.EvidenceRequired | None:
    """What is missing before a member may be taken away; None when it is shown to be idle."""
    if evidence is None:
        return errors.EvidenceMissing(details={"missing": "observation"})
    age_s = (now - evidence.observed_at).total_seconds()
    said = {"state": evidence.state, "source": evidence.source, "age_s": round(age_s, 1)}
    if not -CLOCKS_APART_S <= age_s <= EVIDENCE_FRESH_FOR_S:
        return errors.EvidenceStale(
            f"It was seen {age_s:.0f} s ago; {EVIDENCE_FRESH_FOR_S} s is the limit.",
            details={"missing": "fresh observation", **said},
        )
    if evidence.state == "busy" or evidence.running_work:
        return errors.EvidenceBusy(evidence.detail, details={"missing": "end of running work", **said})
    if evidence.state != "idle":
        return errors.EvidenceUnknown(evidence.detail, details={"missing": "readable observation", **said})
    return None


def at_goal(operation: Operation, target: Target, member: Member) -> bool:
    """A member that is replaced is where it should be only on its new machine."""
    moved = operation.kind != "replace" or member.allocation_id == target.allocation_id
    return moved and member.status in GOALS[operation.kind]


def outcome(operation: Operation, target: Target, member: Member) -> tuple[str, str]:
    """What a member's new status means for its target in the operation: outcome and error."""
    if at_goal(operation, target, member):
        return "succeeded", ""
    if member.status == "failed":
        return "failed", member.status_reason
    return ("pending", "") if target.outcome == "failed" else (target.outcome, target.error)


def to_skip(operation: Operation, members: Mapping[str, Member]) -> set[str]:
    """Members the stop rule leaves out: enough targets failed, and nobody has begun with these."""
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


class Ending(NamedTuple):
    status: OperationStatus
    targets: list[Target]
    error: OperationError | None = None


def ending(operation: Operation, members: Mapping[str, Member], *, undone: bool = False) -> Ending:
    """What "complete" makes of an operation. While a target is neither done, failed nor undone it is refused.

    `undone` is the holder's word that it turned back; it counts where the members cannot show it."""
    if operation.kind in ASKING_KINDS:
        answered = operation.result is not None or operation.preview is not None
        backed_out = operation.status == "cancelling" and not answered
        return Ending("cancelled" if backed_out else "succeeded", operation.targets)
    goal, way_back = GOALS[operation.kind], UNDONE.get(operation.kind, frozenset())
    backing_out = operation.compensating or operation.status == "cancelling"
    targets, open_ones = [], {}
    for target in operation.targets:
        member = members[target.member_id]
        status = member.status
        if _is_done(operation, target, member, undone=undone):
            target = replace(target, outcome="succeeded", error="")
        elif backing_out and status in way_back | lifecycles.GONE_MEMBER:
            target = replace(target, outcome="cancelled", error="")
        elif target.outcome == "skipped":
            pass
        elif status in lifecycles.GONE_MEMBER or (status == "failed" and not backing_out):
            target = replace(target, outcome="failed")
        else:
            open_ones[target.member_id] = status
        targets.append(target)
    if open_ones:
        wanted = " or ".join(sorted(way_back if operation.compensating else goal))
        where = " on its new machine" if operation.kind == "replace" and not operation.compensating else ""
        said = ", ".join(f"{member_id} is {status}" for member_id, status in open_ones.items())
        raise errors.OperationUnfinished(
            f"{operation.kind} is not done: {said}; each must be {wanted}{where}, or failed.",
            details={"members": open_ones, "wanted": sorted(way_back if operation.compensating else goal)},
        )
    left = [target for target in targets if target.outcome != "succeeded"]
    if not left and not operation.compensating:
        return Ending("succeeded", targets)
    return Ending("cancelled", targets) if backing_out else Ending("failed", targets, _partial(targets))


def with_late_cancel(operation: Operation, status: OperationStatus) -> Operation:
    """Whoever cancelled reads on the record that it was done all the same."""
    if operation.status != "cancelling" or status != "succeeded":
        return operation
    *before, cancel = operation.exits_taken
    return replace(operation, exits_taken=[*before, replace(cancel, too_late=True)])


def instance_status(
    instance: Instance, active: OperationKind | None, members: Mapping[str, int], conditions: Sequence[Condition]
) -> InstanceStatus:
    """The one rule. `active` is the operation on the whole instance that runs; `members` counts them by status."""
    if active is not None:
        return STATUS_WHILE[active]
    if instance.baseline != "up":
        return _BASELINE_STATUS[instance.baseline]
    unsound = any(members.get(status) for status in _UNSOUND)
    unsound = unsound or any(condition.status != "true" for condition in conditions)
    return "degraded" if unsound else "running"


def status_reason(instance: Instance, status: InstanceStatus, members: Mapping[str, int]) -> str:
    if status not in ("degraded", "failed"):
        return ""
    said = [f"{found.type}: {found.message or found.reason}" for found in instance.conditions if found.status != "true"]
    down = {state: members[state] for state in sorted(_UNSOUND) if members.get(state)}
    said += [f"{count} {'member is' if count == 1 else 'members are'} {state}" for state, count in down.items()]
    return "; ".join(said)


def baseline_after(present: Baseline, kind: OperationKind, status: OperationStatus) -> Baseline:
    """How an operation on the whole instance leaves it."""
    if status == "succeeded":
        return _LEFT_BY.get(kind, "up")
    if status == "failed":
        return present if kind in _SURVIVES_FAILURE else "failed"
    return "failed" if kind == "deploy" else present


def moved_to(instance: Instance, operation: Operation, manifest: Manifest) -> Instance:
    """On the operation's version. An upgrade remembers the way back, and a rollback takes it, inputs included."""
    upgrade = operation.kind == "upgrade"
    return replace(
        instance,
        app_version=operation.to_version,
        previous_version=operation.from_version if upgrade else "",
        inputs=operation.inputs,
        previous_inputs=instance.inputs if upgrade else {},
        artifacts={name: wanted.digest for name, wanted in manifest.artifacts.items()},
    )


def last_operation(operation: Operation, revision: int, now: datetime.datetime) -> Condition:
    error = operation.error
    failed = error is not None or (operation.status == "cancelled" and operation.kind == "deploy")
    late = any(taken.too_late for taken in operation.exits_taken[-1:])
    said = f"{operation.kind} {operation.status}" + ("; the cancel came too late" if late else "")
    return Condition(
        type=LAST_OPERATION,
        status="false" if failed else "true",
        reason=error.code if error else operation.status,
        message=error.message if error else said,
        observed_revision=revision,
        changed_at=now,
    )


def merged(present: Sequence[Condition], reported: Sequence[Condition]) -> list[Condition]:
    """Conditions by type. What is only said again stays as it is, so that steady reports change nothing."""
    by_type = {condition.type: condition for condition in present}
    for condition in reported:
        before = by_type.get(condition.type)
        if before is None or before.status != condition.status:
            by_type[condition.type] = condition
        elif (before.reason, before.message) != (condition.reason, condition.message):
            by_type[condition.type] = replace(condition, changed_at=before.changed_at)
    return [by_type[name] for name in sorted(by_type)]


def roles(manifest: Manifest, members: Sequence[Member], breakers: Mapping[str, BreakerState]) -> list[Role]:
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
                breaker=breakers.get(role.component_key, BreakerState()),
            )
        )
    return found


def _begins_to_go(member: Member, status: MemberStatus) -> bool:
    """Once a member is `removing`, somebody has answered for it."""
    return status in ("removing", "removed") and member.status not in ("removing", status)


def _is_done(operation: Operation, target: Target, member: Member, *, undone: bool) -> bool:
    """At the goal. Where a cancelled operation looks the same when it was undone, its holder says which it is."""
    if operation.compensating or not at_goal(operation, target, member):
        return False
    looks_undone = operation.kind != "replace" and member.status in UNDONE.get(operation.kind, ())
    return not (undone and looks_undone and operation.status == "cancelling")


def _partial(targets: Sequence[Target]) -> OperationError:
    counts = {name: sum(target.outcome == name for target in targets) for name in ("succeeded", "failed", "skipped")}
    said = f"{counts['succeeded']} of {len(targets)} done, {counts['failed']} failed"
    if counts["skipped"]:
        said += f", {counts['skipped']} not begun because of the stop rule"
    return OperationError(
        code="targets_failed",
        message=f"{said}.",
        failure_class="repairable",
        retryable=True,
        fix="See the error of each target, repair, then retry; or remove the failed members.",
    )


def _health(desired: int, ready: int, failed: int) -> Literal["healthy", "degraded", "failed", "empty"]:
    if desired == 0:
        return "empty"
    if ready == desired:
        return "healthy"
    return "failed" if failed == desired else "degraded"
