"""Pure: check usage records, find repeated ones, and add records to daily totals. Totals are exact."""

import datetime
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuaas_contract import errors
from gpuaas_contract.usage import SUMMARY_DAYS_MAX, ReportedUsage, UsageRecord

_DIGITS_AFTER_POINT = 9
_BILLION = 1_000_000_000
_EARLIEST = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_AHEAD_MAX = datetime.timedelta(days=1)
_SUMMARY_DAYS = 30


class Group(NamedTuple):
    """Key of a daily total within one instance."""

    day: str
    meter: str
    unit: str


@dataclass(frozen=True)
class Total:
    quantity: int = 0
    """In billionths, because sums of integers are exact on every engine."""
    records: int = 0


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


def sort(records: Sequence[ReportedUsage], present: Mapping[str, UsageRecord]) -> Sorted:
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


def group_of(record: ReportedUsage) -> Group:
    return Group(record.started_at.astimezone(datetime.UTC).date().isoformat(), record.meter, record.unit)


def totals(records: Sequence[ReportedUsage], present: Mapping[Group, Total]) -> dict[Group, Total]:
    """Return the new total of every group that the records belong to."""
    sums: dict[Group, Total] = {}
    for record in records:
        group = group_of(record)
        before = sums.get(group) or present.get(group, Total())
        sums[group] = Total(before.quantity + billionths(record.quantity), before.records + 1)
    return sums


def billionths(quantity: str) -> int:
    whole, _, fraction = quantity.partition(".")
    return int(whole) * _BILLION + int(fraction.ljust(_DIGITS_AFTER_POINT, "0"))


def shown(quantity: int) -> str:
    whole, fraction = divmod(quantity, _BILLION)
    return f"{whole}.{fraction:0{_DIGITS_AFTER_POINT}}".rstrip("0").rstrip(".")


def days(
    since: datetime.date | None, until: datetime.date | None, today: datetime.date
) -> tuple[datetime.date, datetime.date]:
    """Return the first day of a summary and the day after its last one."""
    until = until or today + datetime.timedelta(days=1)
    since = since or datetime.date.fromordinal(max(1, until.toordinal() - _SUMMARY_DAYS))
    if (until - since).days > SUMMARY_DAYS_MAX:
        raise errors.ValidationFailed(
            f"A summary covers at most {SUMMARY_DAYS_MAX} days; {since} to {until} are {(until - since).days}.",
            details={"field": "since"},
        )
    return since, until


def _content(record: ReportedUsage | UsageRecord) -> dict[str, object]:
    """Return the reported fields, with the quantity as a number, so that 1 and 1.0 are equal."""
    given = {name: getattr(record, name) for name in ReportedUsage.__struct_fields__}
    return {**given, "quantity": billionths(record.quantity)}


def _refused(field: str, why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"The field `{field}` {why}.", details={"field": field})
