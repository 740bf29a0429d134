"""Pure: whether a record is valid or a repeat, and what it adds to which day. Totals are exact."""

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
    """Records that are summed together, within one instance."""

    day: str
    meter: str
    unit: str


@dataclass(frozen=True)
class Total:
    quantity: int = 0
    """In billionths: whole numbers add up exactly on every engine."""
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
            raise _refused(f"{at}.ended_at", "is before started_at")
        if record.started_at < _EARLIEST:
            raise _refused(f"{at}.started_at", f"is before {_EARLIEST:%Y}")
        if record.ended_at > now + _AHEAD_MAX:
            raise _refused(f"{at}.ended_at", "is in the future")
        if record.member_id and record.member_id not in member_ids:
            raise _refused(f"{at}.member_id", "names no member of this instance")


def sort(records: Sequence[ReportedUsage], present: Mapping[str, UsageRecord]) -> Sorted:
    """Compare with stored records, and within one report with earlier ones: the first with an id counts."""
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
    """The new totals of every group the records touch."""
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
    """The first day and the day after the last one."""
    until = until or today + datetime.timedelta(days=1)
    since = since or datetime.date.fromordinal(max(1, until.toordinal() - _SUMMARY_DAYS))
    if (until - since).days > SUMMARY_DAYS_MAX:
        raise errors.ValidationFailed(
            f"A summary covers at most {SUMMARY_DAYS_MAX} days; {since} to {until} are {(until - since).days}.",
            details={"field": "since"},
        )
    return since, until


def _content(record: ReportedUsage | UsageRecord) -> dict[str, object]:
    """What the reporter gave, with the quantity as a number: 1 and 1.0 are the same."""
    given = {name: getattr(record, name) for name in ReportedUsage.__struct_fields__}
    return {**given, "quantity": billionths(record.quantity)}


def _refused(field: str, why: str) -> errors.ValidationFailed:
    return errors.ValidationFailed(f"The field `{field}` {why}.", details={"field": field})
