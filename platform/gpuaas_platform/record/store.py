"""SQL of events and audit rows."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract.events import AuditRow, Event

from gpuaas_platform.kit import db

_EVENT = msgspec.json.Decoder(Event)
_AUDIT = msgspec.json.Decoder(AuditRow)


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


async def add_audit(tx: db.Tx, row: AuditRow) -> None:
    await tx.run(
        "INSERT INTO audit (org_id, project_id, correlation_id, document) VALUES ($1, $2, $3, $4)",
        row.org_id,
        row.project_id,
        row.correlation_id,
        msgspec.json.encode(row).decode(),
    )


async def audit_after(
    reader: db.Reader, project_id: str, after: int, limit: int, correlation_id: str
) -> Sequence[AuditRow]:
    rows = await reader.all(
        """SELECT document FROM audit WHERE project_id = $1 AND cursor > $2
           AND ($3 = '' OR correlation_id = $3) ORDER BY cursor LIMIT $4""",
        project_id,
        after,
        correlation_id,
        limit,
    )
    return [_AUDIT.decode(row[0]) for row in rows]
