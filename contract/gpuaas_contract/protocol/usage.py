"""Check usage records, and find those that were reported before. Pure; the SDK's fake platform uses it, too."""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.operations import OperationHead
from gpuaas_contract.usage import ReportedUsage, UsageRecord

DIGITS_AFTER_POINT = 9
BILLION = 1_000_000_000
_EARLIEST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_AHEAD_MAX = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Sorted:
    new: list[ReportedUsage]
    repeated: int
    conflicting: list[str]


def check(records: Sequence[ReportedUsage], member_ids: Collection[str], now: datetime.datetime) -> None:
    for position, record in enumerate(records):
        at = f"records[{position}]"
        if record.ended_at < record.started_at:
            raise _refused(f"{at}.ended_at", "is before `started_at`")
        if record.started_at < _EARLIEST:
            raise _refused(f"{at}.started_at", f"is before {_EARLIEST:%Y}")
        if record.ended_at > now + _AHEAD_MAX:
            raise _refused(f"{at}.ended_at", "is in the future")
        if record.member_id and record.member_id not in member_ids:
            raise _refused(f"{at}.member_id", "names no member of this instance")


def check_operation(operation: OperationHead, instance_id: str) -> None:
    """Refuse a report for an instance under the claim of another instance's operation."""
    if operation.instance_id != instance_id:
        raise _refused("operation_id", "names an operation of another instance")


def sort(records: Sequence[ReportedUsage], present: Mapping[str, ReportedUsage | UsageRecord]) -> Sorted:
    """Sort records into new, repeated and conflicting ones. The first record with an id counts, stored or reported."""
    known = {record_id: _content(record) for record_id, record in present.items()}
    new, repeated, conflicting = [], 0, []
    for record in records:
        content = _content(record)
        if record.record_id not in known:
            known[record.record_id] = content
            new.append(record)
        elif known[record.record_id] == content:
            repeated += 1
        else:
            conflicting.append(record.record_id)
    return Sorted(new, repeated, conflicting)


def billionths(quantity: str) -> int:
    whole, _, fraction = quantity.partition(".")
    return int(whole) * BILLION + int(fraction.ljust(DIGITS_AFTER_POINT, "0"))


def _content(record: ReportedUsage | UsageRecord) -> dict[str, object]:
    """Return the reported fields, with the quantity as a number, so that 1 and 1.0 are equal."""
    given = {name: getattr(record, name) for name in ReportedUsage.__struct_fields__}
    return {**given, "quantity": billionths(record.quantity)}


def _refused(field: str, why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"The field `{field}` {why}.", details={"field": field})
