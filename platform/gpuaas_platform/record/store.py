"""SQL of events and of how far they were forgotten; audit rows are in `trail`."""

import datetime
import itertools

import msgspec
from gpuaas_contract.events import Event

from gpuaas_platform.kit import db

_EVENT = msgspec.json.Decoder(Event)


async def add_event(tx: db.Tx, event: Event) -> None:
    await tx.run(
        "INSERT INTO events (project_id, instance_id, correlation_id, document) VALUES ($1, $2, $3, $4)",
        event.project_id,
        event.app_instance_id,
        event.correlation_id,
        msgspec.json.encode(event).decode(),
    )


async def events_after(
    reader: db.Reader, project_id: str, after: int, limit: int, instance_id: str, correlation_id: str
) -> list[Event]:
    rows = await reader.all(
        """SELECT cursor, document FROM events WHERE project_id = $1 AND cursor > $2
           AND ($3 = '' OR instance_id = $3) AND ($4 = '' OR correlation_id = $4) ORDER BY cursor LIMIT $5""",
        project_id,
        after,
        instance_id,
        correlation_id,
        limit,
    )
    return [msgspec.structs.replace(_EVENT.decode(row[1]), cursor=row[0]) for row in rows]


async def events_under(reader: db.Reader, project_id: str, correlation_id: str, limit: int) -> list[Event]:
    rows = await reader.all(
        """SELECT cursor, document FROM events WHERE correlation_id = $1 AND project_id = $2
           ORDER BY cursor LIMIT $3""",
        correlation_id,
        project_id,
        limit,
    )
    return [msgspec.structs.replace(_EVENT.decode(row[1]), cursor=row[0]) for row in rows]


async def newest_cursor(reader: db.Reader, project_id: str) -> int:
    """Of the newest event there ever was, kept or not."""
    rows = await reader.all(
        """SELECT max(cursor) FROM events WHERE project_id = $1
           UNION ALL SELECT forgotten_to FROM event_horizons WHERE project_id = $1""",
        project_id,
    )
    return max((row[0] for row in rows if row[0] is not None), default=0)


async def newest_cursor_anywhere(reader: db.Reader) -> int:
    rows = await reader.all("SELECT max(cursor) FROM events UNION ALL SELECT max(forgotten_to) FROM event_horizons")
    return max((row[0] for row in rows if row[0] is not None), default=0)


async def forgotten_to(reader: db.Reader, project_id: str) -> int:
    """The highest cursor of this project that retention has dropped."""
    row = await reader.one("SELECT forgotten_to FROM event_horizons WHERE project_id = $1", project_id)
    return int(row[0]) if row is not None else 0


async def set_forgotten_to(tx: db.Tx, project_id: str, cursor: int) -> None:
    await tx.run(
        """INSERT INTO event_horizons (project_id, forgotten_to) VALUES ($1, $2)
           ON CONFLICT (project_id) DO UPDATE SET forgotten_to = excluded.forgotten_to""",
        project_id,
        cursor,
    )


async def oldest_events(reader: db.Reader, before: datetime.datetime, limit: int) -> list[tuple[str, int]]:
    """Project and cursor of the oldest events, up to the first that did not happen before `before`."""
    rows = await reader.all("SELECT cursor, project_id, document FROM events ORDER BY cursor LIMIT $1", limit)
    old = itertools.takewhile(lambda row: _EVENT.decode(row[2]).occurred_at < before, rows)
    return [(row[1], row[0]) for row in old]


async def delete_events_to(tx: db.Tx, cursor: int) -> None:
    await tx.run("DELETE FROM events WHERE cursor <= $1", cursor)
