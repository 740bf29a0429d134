"""Write events and audit rows inside the transaction of the change they tell of. Every domain and the edge call it."""

from typing import Any

from gpuaas_contract import events

from gpuaas_platform.call import Origin
from gpuaas_platform.kit import db, ids
from gpuaas_platform.record import store

EVENTS_TOPIC = "events"


async def emit(
    tx: db.Tx,
    origin: Origin,
    kind: str,
    payload: dict[str, Any],
    *,
    org_id: str,
    project_id: str,
    app_slug: str = "",
    app_instance_id: str = "",
    correlation_id: str = "",
) -> None:
    """`correlation_id` is given where the change belongs to an older request than the one being served."""
    if kind not in events.TYPES:
        raise ValueError(f"{kind} is not in the event catalogue")
    event = events.Event(
        event_id=ids.new("evt"),
        cursor=0,
        type=kind,
        occurred_at=origin.now,
        correlation_id=correlation_id or origin.correlation_id,
        org_id=org_id,
        project_id=project_id,
        app_slug=app_slug,
        app_instance_id=app_instance_id,
        payload=payload,
    )
    await store.add_event(tx, event)
    tx.wake(f"{EVENTS_TOPIC}:{project_id}")


async def audit(
    tx: db.Tx,
    origin: Origin,
    action: str,
    target: str,
    *,
    result: str = "success",
    org_id: str = "",
    project_id: str = "",
    details: dict[str, Any] | None = None,
) -> None:
    row = events.AuditRow(
        audit_id=ids.new("aud"),
        occurred_at=origin.now,
        actor_type=origin.caller.actor_type,
        actor_id=origin.caller.actor_id,
        action=action,
        target=target,
        result=result,
        correlation_id=origin.correlation_id,
        org_id=org_id,
        project_id=project_id,
        details=details or {},
    )
    await store.add_audit(tx, row)
