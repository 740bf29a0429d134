"""What was recorded: events, the audit trail, usage."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract import audit, events, usage

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import AnyEndpoint, Filters, Kind
from gpuaas_cli.output import payload_text

EVENT_LIMIT = 500
AUDIT_LIMIT = 500


async def _events(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    query: dict[str, Any] = {**filters.query, "limit": EVENT_LIMIT, "after": 0}
    rows: list[Any] = []
    while True:
        page = await session.call(endpoint, query=query)
        rows += page.items
        if len(page.items) < EVENT_LIMIT:
            return rows
        query["after"] = page.cursor


async def _audit(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    return (await session.first(AUDIT_LIMIT, endpoint, query=dict(filters.query), **filters.path))[0]


KINDS = (
    Kind(
        "events",
        events.EVENT_LIST,
        "event_id",
        "TIME=occurred_at CURSOR TYPE CORRELATION=correlation_id INSTANCE=app_instance_id* EVENT=event_id* PAYLOAD",
        {"PAYLOAD": lambda event: payload_text(event.payload)},
        words="ev",
        known_by=("event_id",),
        by_instance="app_instance_id",
        by_correlation=True,
        fetch_rows=_events,
    ),
    Kind(
        "audit",
        audit.AUDIT_LIST,
        "audit_id",
        "TIME=occurred_at ACTOR ACTION RESULT CORRELATION=correlation_id AUDIT=audit_id* TARGET",
        {"ACTOR": lambda row: f"{row.actor_type}:{row.actor_id}" if row.actor_id else row.actor_type},
        words="audits audit-rows",
        known_by=("audit_id",),
        by_correlation=True,
        fetch_rows=_audit,
    ),
    Kind(
        "usage",
        usage.USAGE_LIST,
        "usage_id",
        "STARTED=started_at ENDED=ended_at METER QUANTITY UNIT APP=app_slug INSTANCE=instance_id "
        "MEMBER=member_id* RECORD=record_id* CORRELATION=correlation_id* SUBJECT",
        words="usage-records",
        known_by=("usage_id", "record_id"),
        by_instance="instance_id",
    ),
)
