"""The envelope that carries every event, and how to follow them. `event_types` has the catalogue."""

from typing import Annotated, Any

import msgspec

from gpuaas_contract.errors import CursorExpired, NotFound
from gpuaas_contract.paths import ADMIN, ORG, PROJECT
from gpuaas_contract.wire import PageSize, Query, Timestamp, WaitSeconds, Wire

Cursor = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class Event(Wire):
    """Something that happened; events are in commit order."""

    event_id: str
    cursor: int
    """Position of the event in the order of commits; send it as `after` to get later events."""
    type: str
    """`domain.thing.happened`; docs/reference/events.md lists all."""
    occurred_at: Timestamp
    correlation_id: str
    """Correlation id of the request that caused the event."""
    org_id: str
    """Organisation of the event; empty for events of the whole platform."""
    project_id: str
    """Empty for events of an organisation or the platform."""
    app_slug: str
    """The app that the event is about; empty if none."""
    app_instance_id: str
    """The app instance that the event is about; empty if none."""
    payload: dict[str, Any]
    """Data of the event. Its schema depends on `type`; docs/reference/events.md lists all."""
    version: str = "1.0"
    """Version of the schema that the event and its payload follow."""


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
    """Position after this answer: send it as `after` to continue. It also passes events that the filters leave out."""


class StreamQuery(Query):
    after: Cursor = 0
    """Only events after this cursor. A `Last-Event-ID` header, which clients send when they reconnect, takes
    precedence."""
    correlation_id: str = ""
    """Only events with this correlation id; empty: all."""


class ProjectStreamQuery(StreamQuery):
    app_instance_id: str = ""
    """Only events of this instance; empty: all."""


_BOOKMARKS = "After 15 seconds without an event a `bookmark` advances the cursor. Reconnect with `Last-Event-ID`."

EVENT_LIST = PROJECT.row(
    "/events",
    "record.events",
    "Follow the events of a project, by long poll",
    "Answers at once if there are events after `after`, else with the next event, or empty after "
    "`wait_s`. Send `cursor` as the next `after`.",
).get(Events, "record.event.read", query=ProjectEventsQuery, errors=(NotFound, CursorExpired))
EVENT_STREAM = PROJECT.row(
    "/events/stream",
    "record.events_stream",
    "Follow the events of a project, as server-sent events",
    _BOOKMARKS,
).get(Event, "record.event.read", query=ProjectStreamQuery, streams=True, errors=(NotFound, CursorExpired))
ORG_EVENT_LIST = ORG.row(
    "/events",
    "record.org_events",
    "Follow the events of an organisation, by long poll",
    "Events of the organisation itself; each of its projects has its own.",
).get(Events, "record.event.read", query=EventsQuery, errors=(NotFound, CursorExpired))
ORG_EVENT_STREAM = ORG.row(
    "/events/stream",
    "record.org_events_stream",
    "Follow the events of an organisation, as server-sent events",
    _BOOKMARKS,
).get(Event, "record.event.read", query=StreamQuery, streams=True, errors=(NotFound, CursorExpired))
PLATFORM_EVENT_LIST = ADMIN.row(
    "/events",
    "record.platform_events",
    "Follow the events of the platform, by long poll",
    "Events of the platform itself; none of a tenant.",
).get(Events, "record.platform_event.read", query=EventsQuery, errors=(CursorExpired,))
PLATFORM_EVENT_STREAM = ADMIN.row(
    "/events/stream",
    "record.platform_events_stream",
    "Follow the events of the platform, as server-sent events",
    _BOOKMARKS,
).get(Event, "record.platform_event.read", query=StreamQuery, streams=True, errors=(CursorExpired,))
