"""What the platform lets a controller report and what follows from it. Pure; `records` asks before each change."""

import datetime
from collections.abc import Sequence
from typing import Literal

from gpuaas_contract import lifecycles
from gpuaas_contract.errors import Conflict, EvidenceRequired
from gpuaas_contract.instances import Member
from gpuaas_contract.lifecycles import InstanceStatus
from gpuaas_contract.operations import EVIDENCE_FRESH_FOR_S, GOALS, Evidence, Operation, Target
from gpuaas_contract.runtime import ReportMember


def check_member_report(operation: Operation, member: Member, report: ReportMember, now: datetime.datetime) -> None:
    if member.member_id not in {target.member_id for target in operation.targets}:
        raise Conflict(f"The operation is not about member {member.member_id}.")
    if not lifecycles.may_move(lifecycles.MEMBER, member.status, report.status):
        raise Conflict(f"A member that is {member.status} cannot become {report.status}.")
    if report.status == member.status or operation.force or not member.was_ready:
        return
    if report.status == "removed" and not _shows_idle(report.evidence, now):
        raise EvidenceRequired("A member that has run work goes only when a fresh observation says it is idle.")
    if report.status == "tombstoned":
        raise EvidenceRequired("A member that has run work is given up only by force.")


def check_complete(operation: Operation, members: Sequence[Member]) -> None:
    goal = GOALS[operation.kind]
    wrong = [f"{member.node_name} is {member.status}" for member in members if member.status not in goal]
    if wrong:
        raise Conflict(f"{operation.kind} is not done: {', '.join(wrong)}; each must be {' or '.join(sorted(goal))}.")


def outcome(operation: Operation, status: str, target: Target) -> Literal["pending", "succeeded", "failed"]:
    if status in GOALS[operation.kind]:
        return "succeeded"
    return "failed" if status == "failed" else target.outcome


def instance_status(
    present: InstanceStatus, operation: Operation, members: Sequence[Member], *, succeeded: bool
) -> InstanceStatus:
    """After the operation ended; `members` are the live ones."""
    if operation.kind == "decommission":
        return "deleted" if succeeded else "failed"
    if operation.kind == "deploy" and not succeeded:
        return "failed"
    if present not in ("deploying", "running", "degraded"):
        return present
    serving = all(member.status in ("ready", "draining", "drained") for member in members)
    return "running" if serving else "degraded"


def _shows_idle(evidence: Evidence | None, now: datetime.datetime) -> bool:
    if evidence is None or evidence.state != "idle":
        return False
    return abs((now - evidence.observed_at).total_seconds()) <= EVIDENCE_FRESH_FOR_S
