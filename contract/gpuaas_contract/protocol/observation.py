"""Decide which observations a controller may report about a member while no operation works on it."""

import datetime
from typing import Literal

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.instances import Condition, Member
from gpuaas_contract.protocol.status import PLATFORM_CONDITIONS
from gpuaas_contract.runtime import ObservedMember, RefusedObservation, ReportRuntime

RefusalCode = Literal["not_found", "stale", "operation_in_progress", "illegal_move"]
_WITHOUT_OPERATION = frozenset({"ready", "degraded", "draining", "drained", "failed"})
"""Statuses between which a member can change without an operation. Members never join or leave this way."""


def unknown_member(observed: ObservedMember) -> RefusedObservation:
    """Return the refusal for an observation of a member that the instance does not have."""
    return _refused(observed, "not_found", "The instance has no member with this id.")


def refusal(member: Member, observed: ObservedMember, *, busy: bool) -> RefusedObservation | None:
    """Return the refusal of an observation; None if it is accepted. `busy`: an operation works on the member."""
    if busy:
        return _refused(
            observed,
            "operation_in_progress",
            "An operation changes the member, so only the controller that claimed it may report on the member.",
        )
    if observed.revision != member.revision:
        return _refused(
            observed,
            "stale",
            f"The report is about an older state of the member, which is now at revision {member.revision}.",
        )
    both = {member.status, observed.status} <= _WITHOUT_OPERATION
    may_move = both and lifecycles.may_move(lifecycles.MEMBER, member.status, observed.status)
    if observed.status != member.status and not may_move:
        message = f"A member changes from {member.status} to {observed.status} only in an operation."
        return _refused(observed, "illegal_move", message)
    return None


def conditions(report: ReportRuntime, now: datetime.datetime) -> list[Condition]:
    """Return the reported conditions. The platform's own conditions are refused."""
    own = sorted(PLATFORM_CONDITIONS & {reported.type for reported in report.conditions})
    if own:
        raise errors.ValidationFailed(f"{own[0]} is set by the platform itself.", details={"field": "conditions"})
    return [
        Condition(
            type=reported.type,
            status=reported.status,
            reason=reported.reason,
            message=reported.message,
            observed_revision=report.observed_revision,
            changed_at=now,
        )
        for reported in report.conditions
    ]


def _refused(observed: ObservedMember, code: RefusalCode, message: str) -> RefusedObservation:
    return RefusedObservation(member_id=observed.member_id, code=code, message=message)
