"""The event catalogue, and the envelope that carries each event."""

import datetime
from typing import Any

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import NotFound
from gpuaas_contract.wire import NoBody, Query, Wire

TYPES: dict[str, str] = {
    "apps.instance.requested": "a deploy was accepted",
    "apps.instance.deploying": "an app controller took the deploy up",
    "apps.instance.running": "the app is up and every member is ready",
    "apps.instance.degraded": "the app is up and a member is not ready",
    "apps.instance.failed": "a deploy or a teardown failed",
    "apps.instance.deleting": "a decommission was accepted",
    "apps.instance.deleted": "the app is gone from its machines",
    "apps.member.changed": "a member changed its status",
    "apps.operation.accepted": "an operation waits for the app controller",
    "apps.operation.claimed": "an app controller holds the operation",
    "apps.operation.step": "a step of an operation started, ended or said something new",
    "apps.operation.ended": "an operation succeeded, failed or was cancelled",
    "capacity.allocation.changed": "an allocation changed its status",
    "capacity.node.changed": "a node changed its status",
    "access.machine.granted": "somebody got a certificate for a machine",
    "catalog.entitlement.changed": "a project may or may no longer deploy an app",
}


class Event(Wire):
    event_id: str
    cursor: int
    """Position in commit order; pass it as `after` to go on from here."""
    type: str
    occurred_at: datetime.datetime
    correlation_id: str
    org_id: str
    project_id: str
    app_slug: str
    app_instance_id: str
    payload: dict[str, Any]
    version: str = "1.0"


class EventsQuery(Query):
    after: int = 0
    wait_s: float = 0
    """Wait this long, 30 at the most, for the first event after the cursor."""
    limit: int = 200
    app_instance_id: str = ""
    correlation_id: str = ""


class Events(Wire):
    items: list[Event]
    cursor: int


class AuditRow(Wire):
    audit_id: str
    occurred_at: datetime.datetime
    actor_type: str
    actor_id: str
    action: str
    target: str
    result: str
    correlation_id: str
    org_id: str
    project_id: str
    details: dict[str, Any]


class AuditQuery(Query):
    correlation_id: str = ""
    after: int = 0
    limit: int = 200


class AuditRows(Wire):
    items: list[AuditRow]


EVENT_LIST = Endpoint(
    "record.events",
    "GET",
    "/api/v1/projects/{project_id}/events",
    "Follow what happens in a project, in commit order",
    permission="record.event.read",
    request=NoBody,
    query=EventsQuery,
    response=Events,
    errors=(NotFound,),
)
AUDIT_LIST = Endpoint(
    "record.audit",
    "GET",
    "/api/v1/projects/{project_id}/audit",
    "Who did what, and who was refused",
    permission="record.audit.read",
    request=NoBody,
    query=AuditQuery,
    response=AuditRows,
    errors=(NotFound,),
)
ENDPOINTS = (EVENT_LIST, AUDIT_LIST)
