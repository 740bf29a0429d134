"""Pure: add usage records to daily totals, which are exact. `gpuaas_contract.protocol.usage` checks the records."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuaas_contract import errors
from gpuaas_contract.protocol.usage import BILLION, DIGITS_AFTER_POINT, billionths
from gpuaas_contract.usage import SUMMARY_DAYS_MAX, ReportedUsage

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


def shown(quantity: int) -> str:
    whole, fraction = divmod(quantity, BILLION)
    return f"{whole}.{fraction:0{DIGITS_AFTER_POINT}}".rstrip("0").rstrip(".")


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
