"""The envelope that carries every event, and how to follow them. `event_types` has the catalogue."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract.audit import AUDIT_LIST as AUDIT_LIST
from gpuaas_contract.audit import AuditRow as AuditRow
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import CursorExpired, NotFound
from gpuaas_contract.wire import NoBody, PageSize, Query, Timestamp, WaitSeconds, Wire

Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Event(Wire):
    """Something that happened, told in commit order."""

    event_id: str
    cursor: int
    """Position in commit order; pass it as `after` to go on from here."""
    type: str
    """`domain.thing.happened`; docs/reference/events.md lists all."""
    occurred_at: Timestamp
    correlation_id: str
    """Of the request that caused it."""
    org_id: str
    """Empty for what concerns the whole platform."""
    project_id: str
    """Empty for what concerns a whole organisation or the platform."""
    app_slug: str
    """The app it concerns; empty for what is not about an app."""
    app_instance_id: str
    """The instance it concerns; empty for what is not about one."""
    payload: dict[str, Any]
    """Its form is named by `type`; see `event_types`."""
    version: str = "1.0"
    """Of the form of the envelope and the payload."""


class EventsQuery(Query):
    after: Cursor = 0
    """Events behind this cursor only; 0 starts with the oldest that is kept."""
    wait_s: WaitSeconds = 0
    """How long to wait for the first event after the cursor."""
    limit: PageSize = 200
    """Largest number of events in the answer."""
    correlation_id: str = ""
    """Events under this id only; empty: all."""


class ProjectEventsQuery(EventsQuery):
    app_instance_id: str = ""
    """Events of this instance only; empty: of all."""


class Events(Wire):
    """Events behind a cursor, and where to go on."""

    items: list[Event]
    cursor: int
    """Pass it as `after` to go on from here; it moves on past events the filters left out."""


class StreamQuery(Query):
    after: Cursor = 0
    """As in the list. A `Last-Event-ID` header, sent by clients that reconnect, goes before it."""
    correlation_id: str = ""
    """Events under this id only; empty: all."""


class ProjectStreamQuery(StreamQuery):
    app_instance_id: str = ""
    """Events of this instance only; empty: of all."""


EVENT_LIST = Endpoint(
    "record.events",
    "GET",
    "/api/v1/projects/{project_id}/events",
    "Follow what happens in a project, in commit order",
    permission="record.event.read",
    request=NoBody,
    query=ProjectEventsQuery,
    response=Events,
    errors=(NotFound, CursorExpired),
)
EVENT_STREAM = Endpoint(
    "record.events_stream",
    "GET",
    "/api/v1/projects/{project_id}/events/stream",
    "Follow what happens in a project as server-sent events, with a bookmark after every 15 s of silence",
    permission="record.event.read",
    request=NoBody,
    query=ProjectStreamQuery,
    response=Event,
    streams=True,
    errors=(NotFound, CursorExpired),
)
ORG_EVENT_LIST = Endpoint(
    "record.org_events",
    "GET",
    "/api/v1/orgs/{org_id}/events",
    "Follow what happens to a whole organisation, in commit order; its projects have records of their own",
    permission="record.event.read",
    request=NoBody,
    query=EventsQuery,
    response=Events,
    errors=(NotFound, CursorExpired),
)
ORG_EVENT_STREAM = Endpoint(
    "record.org_events_stream",
    "GET",
    "/api/v1/orgs/{org_id}/events/stream",
    "Follow what happens to a whole organisation as server-sent events, with a bookmark after every 15 s of silence",
    permission="record.event.read",
    request=NoBody,
    query=StreamQuery,
    response=Event,
    streams=True,
    errors=(NotFound, CursorExpired),
)
PLATFORM_EVENT_LIST = Endpoint(
    "record.platform_events",
    "GET",
    "/api/v1/admin/events",
    "Follow what happens to the platform as a whole, in commit order; nothing of any tenant",
    permission="record.platform_event.read",
    request=NoBody,
    query=EventsQuery,
    response=Events,
    errors=(CursorExpired,),
)
PLATFORM_EVENT_STREAM = Endpoint(
    "record.platform_events_stream",
    "GET",
    "/api/v1/admin/events/stream",
    "Follow what happens to the platform as a whole as server-sent events, with a bookmark after every 15 s of silence",
    permission="record.platform_event.read",
    request=NoBody,
    query=StreamQuery,
    response=Event,
    streams=True,
    errors=(CursorExpired,),
)
ENDPOINTS = (
    EVENT_LIST,
    EVENT_STREAM,
    ORG_EVENT_LIST,
    ORG_EVENT_STREAM,
    PLATFORM_EVENT_LIST,
    PLATFORM_EVENT_STREAM,
)
