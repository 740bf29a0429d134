"""SQL of usage records and daily totals."""

import datetime
import functools
from collections.abc import Collection, Mapping, Sequence

import msgspec
from gpuaas_contract.instances import Instance
from gpuaas_contract.protocol.usage import billionths
from gpuaas_contract.usage import SummaryQuery, UsageDay, UsageQuery, UsageRecord

from gpuaas_platform.kit import clock, db
from gpuaas_platform.usage import rules
from gpuaas_platform.usage.rules import Group, Total

_RECORD = msgspec.json.Decoder(UsageRecord)
_RECORD_COLUMNS = ("usage_id", "project_id", "instance_id", "record_id", "meter", "started_at", "document")
_DAY_COLUMNS = ("project_id", "day", "instance_id", "meter", "unit", "app_slug", "quantity", "records")
_SHOWN_DAY = _DAY_COLUMNS[1:]
_LATEST = 2**63 - 1
_ROWS_PER_STATEMENT = 50
Position = tuple[int, str]
"""Position of a record in lists: its start and its id, in this order."""
START: Position = (-(2**63), "")


async def present(reader: db.Reader, instance_id: str, record_ids: Collection[str]) -> dict[str, UsageRecord]:
    records: dict[str, UsageRecord] = {}
    for some in db.chunks(list(record_ids), _ROWS_PER_STATEMENT):
        sql = f"""SELECT record_id, document FROM usage_records
                  WHERE instance_id = $1 AND record_id IN ({db.marks(len(some), 2)})"""  # noqa: S608 - marks only
        records |= {row[0]: _RECORD.decode(row[1]) for row in await reader.all(sql, instance_id, *some)}
    return records


async def add(tx: db.Tx, records: Sequence[UsageRecord]) -> None:
    for some in db.chunks(records, _ROWS_PER_STATEMENT):
        values: list[object] = []
        for record in some:
            values += [record.usage_id, record.project_id, record.instance_id, record.record_id, record.meter]
            values += [clock.micros(record.started_at), msgspec.json.encode(record).decode()]
        await tx.run(_insert_sql("usage_records", _RECORD_COLUMNS, len(some)), *values)


async def totals(reader: db.Reader, instance: Instance, groups: Collection[Group]) -> dict[Group, Total]:
    days = sorted({group.day for group in groups})
    sql = f"""SELECT day, meter, unit, quantity, records FROM usage_days
              WHERE project_id = $1 AND instance_id = $2 AND day IN ({db.marks(len(days), 3)})"""  # noqa: S608
    rows = await reader.all(sql, instance.project_id, instance.instance_id, *days)
    return {Group(row[0], row[1], row[2]): Total(billionths(row[3]), row[4]) for row in rows}


async def put_totals(tx: db.Tx, instance: Instance, totals_by_group: Mapping[Group, Total]) -> None:
    for some in db.chunks(list(totals_by_group.items()), _ROWS_PER_STATEMENT):
        values: list[object] = []
        for group, total in some:
            values += [instance.project_id, group.day, instance.instance_id, group.meter, group.unit]
            values += [instance.app_slug, rules.shown(total.quantity), total.records]
        sql = f"""{_insert_sql("usage_days", _DAY_COLUMNS, len(some))}
                  ON CONFLICT (project_id, day, instance_id, meter, unit)
                  DO UPDATE SET quantity = excluded.quantity, records = excluded.records"""
        await tx.run(sql, *values)


async def records_after(
    reader: db.Reader, project_id: str, query: UsageQuery, after: Position, limit: int
) -> list[UsageRecord]:
    """Return records in the order of their start. Each combination of filters has one index in this order.

    The position is a range of one column and a filter for ties: for a row value, SQLite would use another index."""
    where, values = _filters(project_id, query.instance_id, query.meter)
    since = clock.micros(query.since) if query.since else START[0]
    until = clock.micros(query.until) if query.until else _LATEST
    position = len(values)
    sql = f"""SELECT document FROM usage_records WHERE {where}
              AND started_at >= ${position + 1} AND started_at < ${position + 2}
              AND (started_at > ${position + 3} OR usage_id > ${position + 4})
              ORDER BY started_at, usage_id LIMIT ${position + 5}"""  # noqa: S608 - names and marks are ours
    rows = await reader.all(sql, *values, max(since, after[0]), until, *after, limit)
    return [_RECORD.decode(row[0]) for row in rows]


def position_of(record: UsageRecord) -> Position:
    return clock.micros(record.started_at), record.usage_id


async def days_after(
    reader: db.Reader,
    project_id: str,
    query: SummaryQuery,
    days: tuple[datetime.date, datetime.date],
    after: Sequence[str],
    limit: int,
) -> list[UsageDay]:
    where, values = _filters(project_id, query.instance_id, query.meter)
    position = len(values)
    sql = f"""SELECT {", ".join(_SHOWN_DAY)} FROM usage_days WHERE {where}
              AND day >= ${position + 1} AND day < ${position + 2}
              AND (day > ${position + 3} OR (instance_id, meter, unit) > ({db.marks(3, position + 4)}))
              ORDER BY day, instance_id, meter, unit LIMIT ${position + 7}"""  # noqa: S608
    since, until = (day.isoformat() for day in days)
    rows = await reader.all(sql, *values, max(since, after[0]), until, *after, limit)
    return [msgspec.convert({name: row[name] for name in _SHOWN_DAY}, UsageDay) for row in rows]


def _filters(project_id: str, instance_id: str, meter: str) -> tuple[str, list[str]]:
    return db.equal({"project_id": project_id, "instance_id": instance_id, "meter": meter})


@functools.lru_cache(maxsize=2 * _ROWS_PER_STATEMENT)
def _insert_sql(table: str, columns: tuple[str, ...], count: int) -> str:
    width = len(columns)
    rows = ", ".join(f"({db.marks(width, 1 + width * row)})" for row in range(count))
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {rows}"  # noqa: S608 - names are ours
