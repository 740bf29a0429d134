"""What was recorded: events, the audit trail, usage."""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract.events import EVENT_LIST
from gpuaas_contract.usage import USAGE_LIST

from gpuaas_cli.client import lookup, trail
from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import Filters, Kind, names, payload_text
from gpuaas_cli.output import Column, clock_time

EVENT_LIMIT = 500


async def _events(session: Session, filters: Filters) -> Sequence[Any]:
    query: dict[str, Any] = {"limit": EVENT_LIMIT, "correlation_id": filters.correlation, "after": 0}
    if filters.instance:
        query["app_instance_id"] = (await lookup.instance(session, filters.instance)).instance_id
    found: list[Any] = []
    while True:
        page = await session.call(EVENT_LIST, query=query)
        found += page.items
        if len(page.items) < EVENT_LIMIT:
            return found
        query["after"] = page.cursor


async def _audit(session: Session, filters: Filters) -> Sequence[Any]:
    return (await trail.read(session, trail.PROJECT, {"correlation_id": filters.correlation})).items


async def _usage(session: Session, filters: Filters) -> Sequence[Any]:
    query = {"instance_id": (await lookup.instance(session, filters.instance)).instance_id} if filters.instance else {}
    return await session.every(USAGE_LIST, query=query)


KINDS: tuple[Kind, ...] = (
    Kind(
        "events",
        names("event", "events", "ev"),
        _events,
        (
            Column("TIME", lambda one: clock_time(one.occurred_at)),
            Column("CURSOR", lambda one: str(one.cursor)),
            Column("TYPE", lambda one: one.type),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("INSTANCE", lambda one: one.app_instance_id, wide=True),
            Column("EVENT", lambda one: one.event_id, wide=True),
            Column("PAYLOAD", lambda one: payload_text(one.payload)),
        ),
        lambda one: one.event_id,
        lambda one: (one.event_id,),
    ),
    Kind(
        "audit",
        names("audit", "audits", "audit-rows"),
        _audit,
        (
            Column("TIME", lambda one: clock_time(one.occurred_at)),
            Column("ACTOR", lambda one: f"{one.actor_type}:{one.actor_id}" if one.actor_id else one.actor_type),
            Column("ACTION", lambda one: one.action),
            Column("RESULT", lambda one: one.result),
            Column("CORRELATION", lambda one: one.correlation_id),
            Column("AUDIT", lambda one: one.audit_id, wide=True),
            Column("TARGET", lambda one: one.target),
        ),
        lambda one: one.audit_id,
        lambda one: (one.audit_id,),
    ),
    Kind(
        "usage",
        names("usage", "usage-records"),
        _usage,
        (
            Column("STARTED", lambda one: clock_time(one.started_at)),
            Column("ENDED", lambda one: clock_time(one.ended_at)),
            Column("METER", lambda one: one.meter),
            Column("QUANTITY", lambda one: one.quantity),
            Column("UNIT", lambda one: one.unit),
            Column("APP", lambda one: one.app_slug),
            Column("INSTANCE", lambda one: one.instance_id),
            Column("MEMBER", lambda one: one.member_id, wide=True),
            Column("RECORD", lambda one: one.record_id, wide=True),
            Column("CORRELATION", lambda one: one.correlation_id, wide=True),
            Column("SUBJECT", lambda one: one.subject),
        ),
        lambda one: one.usage_id,
        lambda one: (one.usage_id, one.record_id),
    ),
)
