"""Write events and audit rows in the transaction of the change they describe. Called by every domain and the edge."""

from collections.abc import Mapping

import msgspec
from gpuaas_contract import event_types, events
from gpuaas_contract.audit import AuditEntry
from gpuaas_contract.permissions import BREAK_GLASS
from gpuaas_contract.wire import Wire

from gpuaas_platform.call import PLATFORM, Origin, Owned
from gpuaas_platform.kit import db, ids
from gpuaas_platform.record import follow, store, trail

_TEXT_MAX = 300


async def emit(
    tx: db.Tx,
    origin: Origin,
    kind: str,
    payload: Wire,
    of: Owned,
    *,
    app_slug: str = "",
    app_instance_id: str = "",
    correlation_id: str = "",
) -> None:
    """Write an event. `correlation_id` is set if the change belongs to an earlier request than the current one."""
    expected, scope = event_types.TYPES[kind], follow.scope_of(of)
    level = "project" if of.project_id else "org" if of.org_id else "platform"
    if type(payload) is not expected.payload:
        raise TypeError(f"{kind} carries {expected.payload.__name__}, not {type(payload).__name__}")
    if level not in expected.levels:
        raise TypeError(f"{kind} belongs to the record of {' or '.join(expected.levels)}, not of {level}")
    event = events.Event(
        event_id=ids.new("evt"),
        cursor=0,
        type=kind,
        occurred_at=origin.now,
        correlation_id=correlation_id or origin.correlation_id,
        org_id=of.org_id,
        project_id=of.project_id,
        app_slug=app_slug,
        app_instance_id=app_instance_id,
        payload=msgspec.to_builtins(payload),
    )
    await store.add_event(tx, scope, event)
    tx.wake(follow.topic(scope))


async def audit(
    tx: db.Tx,
    origin: Origin,
    action: str,
    target: str,
    of: Owned = PLATFORM,
    *,
    result: str = "success",
    details: Mapping[str, object] | None = None,
) -> None:
    """Append an audit row to the organisation's chain, in the transaction of the change: no change without its row."""
    entry = AuditEntry(
        audit_id=ids.new("aud"),
        occurred_at=origin.now,
        actor_type=origin.caller.actor_type,
        actor_id=origin.caller.actor_id,
        actor_name=_readable(origin.caller.name),
        action=action,
        target=_readable(target),
        result=result,
        correlation_id=origin.correlation_id,
        org_id=of.org_id,
        project_id=of.project_id,
        peer=origin.peer,
        route=origin.route,
        details={**(details or {}), **_emergency(origin)},
    )
    await trail.append(tx, entry)


def _emergency(origin: Origin) -> dict[str, str]:
    """Return the reason of the caller's break-glass access, which every audit row of this caller contains."""
    taken = next((binding for binding in origin.caller.bindings if binding.role == BREAK_GLASS), None)
    return {BREAK_GLASS: taken.reason} if taken else {}


def _readable(text: str) -> str:
    """Replace control characters and limit the length, because callers choose names and parts of paths."""
    text = text[:_TEXT_MAX]
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
