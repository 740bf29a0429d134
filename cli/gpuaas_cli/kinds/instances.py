"""App instances, all that belongs to one, and what was recorded: events, the audit trail, usage.

instances inst insts app-instance app-instances: NAME APP=app_slug VERSION=app_version STATUS TOPOLOGY AGE=created_at
    OBSERVED INSTANCE=instance_id OPERATION=last_operation_id* CORRELATION=correlation_id* REASON=status_reason
members mem: MEMBER=member_id ROLE=component_key STATUS NODE=node_name ALLOCATION=allocation_id
    OPERATION=last_operation_id CORRELATION=correlation_id INSTANCE=instance_id* VERSION=observed_version* ADDRESS*
    DETAIL=status_reason
roles: ROLE=component_key HEALTH DESIRED CURRENT READY FAILED_LATELY=breaker.failures BREAKER
holds: HOLD=hold_id NAME KIND STATE MEMBER=member_id OWNER UNTIL=expires_at REASON
operations op ops: OPERATION=operation_id KIND INSTANCE=instance_name STATUS AGE=created_at CORRELATION=correlation_id
    ROLE=component_key* ATTEMPTS* BY=requested_by* ERROR
controllers: CONTROLLER=holder APP=app_slug VERSION ACTOR=actor_id ID=controller_id* LAST_SEEN=last_seen_at FAILING
secrets runtime-secret runtime-secrets: SECRET=secret_id PURPOSE NAME VERSION STATE OPENED UNTIL=expires_at
    FINGERPRINT* BY=issued_by* OPERATION=operation_id
events ev: TIME=occurred_at CURSOR TYPE CORRELATION=correlation_id INSTANCE=app_instance_id* EVENT=event_id* PAYLOAD
audit audits audit-rows: TIME=occurred_at ACTOR ACTION RESULT CORRELATION=correlation_id AUDIT=audit_id* TARGET
usage usage-records: STARTED=started_at ENDED=ended_at METER QUANTITY UNIT APP=app_slug INSTANCE=instance_id
    MEMBER=member_id* RECORD=record_id* CORRELATION=correlation_id* SUBJECT
"""

from collections.abc import Sequence
from typing import Any

from gpuaas_contract import audit, controllers, events, holds, instances, operations, secrets, usage
from gpuaas_contract.lifecycles import GONE_MEMBER

from gpuaas_cli.client.session import Session
from gpuaas_cli.kinds.kind import AnyEndpoint, Filters, Kind
from gpuaas_cli.output import payload_text
from gpuaas_cli.show import controllers as reports
from gpuaas_cli.show import steps, story

EVENT_LIMIT = 500
AUDIT_LIMIT = 500


async def _members(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    """Return the members of one instance or of all, ordered by role and then naturally: gpu-2 before gpu-10."""
    query, ids = dict(filters.query), [filters.instance]
    if not filters.instance:
        ids = [item.instance_id for item in await session.every(instances.INSTANCE_LIST, query=query)]
    rows = [row for instance_id in ids for row in await session.every(endpoint, query=query, instance_id=instance_id)]
    return sorted(rows, key=lambda item: (item.instance_id, item.component_key, len(item.node_name), item.node_name))


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


KINDS = {
    "instances": Kind(
        instances.INSTANCE_LIST,
        {"OBSERVED": story.last_look},
        getting=instances.INSTANCE_GET,
        live={"live": "true"},
    ),
    "members": Kind(
        instances.MEMBER_LIST,
        ids="node_name",
        is_gone=lambda member: member.status in GONE_MEMBER,
        live={"live": "true"},
        fetch_rows=_members,
    ),
    "roles": Kind(instances.ROLE_LIST, {"BREAKER": lambda role: story.state_of_breaker(role.breaker)}),
    "holds": Kind(
        holds.HOLD_LIST,
        {"STATE": story.state_of_hold},
        ids="name",
        is_gone=lambda hold: story.state_of_hold(hold) != "active",
    ),
    "operations": Kind(
        operations.OPERATION_LIST,
        {
            "KIND": steps.kind,
            "ERROR": lambda operation: f"{operation.error.code}: {operation.error.message}" if operation.error else "",
        },
        getting=operations.OPERATION_GET,
        is_gone=lambda operation: operation.kind == "preview",
        by_instance="instance_id",
    ),
    "controllers": Kind(
        controllers.CONTROLLER_LIST,
        {"FAILING": reports.failing},
        ids="controller_id",
    ),
    "secrets": Kind(
        secrets.SECRET_LIST,
        {"OPENED": lambda secret: f"{secret.deliveries_opened}/{secret.deliveries}"},
        ids="name",
        is_gone=lambda secret: secret.state != "issued",
    ),
    "events": Kind(
        events.EVENT_LIST,
        {"PAYLOAD": lambda event: payload_text(event.payload)},
        name="event_id",
        by_instance="app_instance_id",
        by_correlation=True,
        fetch_rows=_events,
    ),
    "audit": Kind(
        audit.AUDIT_LIST,
        {"ACTOR": lambda row: f"{row.actor_type}:{row.actor_id}" if row.actor_id else row.actor_type},
        name="audit_id",
        by_correlation=True,
        fetch_rows=_audit,
    ),
    "usage": Kind(usage.USAGE_LIST, name="usage_id", ids="record_id", by_instance="instance_id"),
}
