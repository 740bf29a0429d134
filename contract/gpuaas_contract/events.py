"""The envelope that carries every event, and how to follow them. `event_types` has the catalogue."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract.audit import AUDIT_LIST as AUDIT_LIST
from gpuaas_contract.audit import AuditRow as AuditRow
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.errors import CursorExpired, NotFound
from gpuaas_contract.paths import OrgPath, ProjectPath
from gpuaas_contract.wire import NoBody, PageSize, Query, Timestamp, WaitSeconds, Wire

Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Event(Wire):
    """Something that happened; events are in commit order."""

    event_id: str
    cursor: int
    """Position in commit order; send it as `after` to continue from here."""
    type: str
    """`domain.thing.happened`; docs/reference/events.md lists all."""
    occurred_at: Timestamp
    correlation_id: str
    """Correlation id of the request that caused it."""
    org_id: str
    """Empty for events of the whole platform."""
    project_id: str
    """Empty for events of an organisation or the platform."""
    app_slug: str
    """The app it is about; empty if none."""
    app_instance_id: str
    """The instance it is about; empty if none."""
    payload: dict[str, Any]
    """Its schema depends on `type`; docs/reference/events.md lists all."""
    version: str = "1.0"
    """Version of the schema of envelope and payload."""


class EventsQuery(Query):
    after: Cursor = 0
    """Only events after this cursor; 0: from the oldest that is stored."""
    wait_s: WaitSeconds = 0
    """How long to wait for the first event after the cursor."""
    limit: PageSize = 200
    """Largest number of events in the answer."""
    correlation_id: str = ""
    """Only events with this correlation id; empty: all."""


class ProjectEventsQuery(EventsQuery):
    app_instance_id: str = ""
    """Only events of this instance; empty: all."""


class Events(Wire):
    """Events after a cursor."""

    items: list[Event]
    cursor: int
    """Send it as `after` to continue from here. It also moves past events that the filters leave out."""


class StreamQuery(Query):
    after: Cursor = 0
    """As in the list. A `Last-Event-ID` header, which clients send when they reconnect, takes precedence."""
    correlation_id: str = ""
    """Only events with this correlation id; empty: all."""


class ProjectStreamQuery(StreamQuery):
    app_instance_id: str = ""
    """Only events of this instance; empty: all."""


EVENT_LIST = Endpoint(
    "record.events",
    "GET",
    "/api/v1/projects/{project_id}/events",
    "Follow the events of a project, by long poll",
    params=ProjectPath,
    permission="record.event.read",
    request=NoBody,
    query=ProjectEventsQuery,
    response=Events,
    errors=(NotFound, CursorExpired),
    description="Answers at once if there are events after `after`, else with the next event, or empty after "
    "`wait_s`. Send `cursor` as the next `after`.",
)
EVENT_STREAM = Endpoint(
    "record.events_stream",
    "GET",
    "/api/v1/projects/{project_id}/events/stream",
    "Follow the events of a project, as server-sent events",
    params=ProjectPath,
    permission="record.event.read",
    request=NoBody,
    query=ProjectStreamQuery,
    response=Event,
    streams=True,
    errors=(NotFound, CursorExpired),
    description="After 15 seconds without an event a `bookmark` advances the cursor. Reconnect with `Last-Event-ID`.",
)
ORG_EVENT_LIST = Endpoint(
    "record.org_events",
    "GET",
    "/api/v1/orgs/{org_id}/events",
    "Follow the events of an organisation, by long poll",
    params=OrgPath,
    permission="record.event.read",
    request=NoBody,
    query=EventsQuery,
    response=Events,
    errors=(NotFound, CursorExpired),
    description="Events of the organisation itself; each of its projects has its own.",
)
ORG_EVENT_STREAM = Endpoint(
    "record.org_events_stream",
    "GET",
    "/api/v1/orgs/{org_id}/events/stream",
    "Follow the events of an organisation, as server-sent events",
    params=OrgPath,
    permission="record.event.read",
    request=NoBody,
    query=StreamQuery,
    response=Event,
    streams=True,
    errors=(NotFound, CursorExpired),
    description="After 15 seconds without an event a `bookmark` advances the cursor. Reconnect with `Last-Event-ID`.",
)
PLATFORM_EVENT_LIST = Endpoint(
    "record.platform_events",
    "GET",
    "/api/v1/admin/events",
    "Follow the events of the platform, by long poll",
    permission="record.platform_event.read",
    request=NoBody,
    query=EventsQuery,
    response=Events,
    errors=(CursorExpired,),
    description="Events of the platform itself; none of a tenant.",
)
PLATFORM_EVENT_STREAM = Endpoint(
    "record.platform_events_stream",
    "GET",
    "/api/v1/admin/events/stream",
    "Follow the events of the platform, as server-sent events",
    permission="record.platform_event.read",
    request=NoBody,
    query=StreamQuery,
    response=Event,
    streams=True,
    errors=(CursorExpired,),
    description="After 15 seconds without an event a `bookmark` advances the cursor. Reconnect with `Last-Event-ID`.",
)
ENDPOINTS = (
    EVENT_LIST,
    EVENT_STREAM,
    ORG_EVENT_LIST,
    ORG_EVENT_STREAM,
    PLATFORM_EVENT_LIST,
    PLATFORM_EVENT_STREAM,
)
