"""SQL of events and of their highest deleted cursor; audit rows are in `trail`."""

import datetime
import itertools

import msgspec
from gpuaas_contract.events import Event

from gpuaas_platform.kit import db

_EVENT = msgspec.json.Decoder(Event)


async def add_event(tx: db.Tx, scope: str, event: Event) -> None:
    sql = "INSERT INTO events (scope, instance_id, correlation_id, document) VALUES ($1, $2, $3, $4)"
    await tx.run(sql, scope, event.app_instance_id, event.correlation_id, msgspec.json.encode(event).decode())


async def events_after(
    reader: db.Reader, scope: str, after: int, limit: int, instance_id: str, correlation_id: str
) -> list[Event]:
    sql = """SELECT cursor, document FROM events WHERE scope = $1 AND cursor > $2
             AND ($3 = '' OR instance_id = $3) AND ($4 = '' OR correlation_id = $4) ORDER BY cursor LIMIT $5"""
    return [_event(row) for row in await reader.all(sql, scope, after, instance_id, correlation_id, limit)]


async def events_under(reader: db.Reader, scope: str, correlation_id: str, limit: int) -> list[Event]:
    sql = "SELECT cursor, document FROM events WHERE correlation_id = $1 AND scope = $2 ORDER BY cursor LIMIT $3"
    return [_event(row) for row in await reader.all(sql, correlation_id, scope, limit)]


def _event(row: db.Row) -> Event:
    return msgspec.structs.replace(_EVENT.decode(row[1]), cursor=row[0])


async def newest_cursor(reader: db.Reader, scope: str) -> int:
    """Return the cursor of the newest event, even if it was deleted."""
    sql = """SELECT max(cursor) FROM events WHERE scope = $1
             UNION ALL SELECT forgotten_to FROM event_horizons WHERE scope = $1"""
    rows = await reader.all(sql, scope)
    return max((row[0] for row in rows if row[0] is not None), default=0)


async def newest_cursor_anywhere(reader: db.Reader) -> int:
    rows = await reader.all("SELECT max(cursor) FROM events UNION ALL SELECT max(forgotten_to) FROM event_horizons")
    return max((row[0] for row in rows if row[0] is not None), default=0)


async def limits(reader: db.Reader, scope: str, position: int) -> tuple[int, int]:
    """Return the highest cursor of this record that retention has deleted; and, if the position was lost in a restore,
    the highest lost cursor. Each is 0 if there is none."""
    sql = """SELECT coalesce((SELECT forgotten_to FROM event_horizons WHERE scope = $1), 0),
             coalesce((SELECT max(lost_to) FROM restores WHERE lost_after < $2 AND lost_to >= $2), 0)"""
    row = await reader.one(sql, scope, position)
    return (int(row[0]), int(row[1])) if row is not None else (0, 0)


async def add_restore(tx: db.Tx, restored_at: int, cut_at: int, lost_after: int, lost_to: int) -> None:
    sql = "INSERT INTO restores (restored_at, cut_at, lost_after, lost_to) VALUES ($1, $2, $3, $4)"
    await tx.run(sql, restored_at, cut_at, lost_after, lost_to)


async def set_forgotten_to(tx: db.Tx, scope: str, cursor: int) -> None:
    sql = """INSERT INTO event_horizons (scope, forgotten_to) VALUES ($1, $2)
             ON CONFLICT (scope) DO UPDATE SET forgotten_to = excluded.forgotten_to"""
    await tx.run(sql, scope, cursor)


async def oldest_events(reader: db.Reader, before: datetime.datetime, limit: int) -> list[tuple[str, int]]:
    """Return scope and cursor of the oldest events, up to the first that is not older than `before`."""
    rows = await reader.all("SELECT cursor, scope, document FROM events ORDER BY cursor LIMIT $1", limit)
    old = itertools.takewhile(lambda row: _EVENT.decode(row[2]).occurred_at < before, rows)
    return [(row[1], row[0]) for row in old]


async def delete_events_to(tx: db.Tx, cursor: int) -> None:
    await tx.run("DELETE FROM events WHERE cursor <= $1", cursor)
