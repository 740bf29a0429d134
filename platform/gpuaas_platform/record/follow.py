"""Follow one record of events by position, as a long poll or, through `watch`, as a stream.

A record is named by its scope: a project, an organisation or the platform. Each has events of its own. After each read
the position is compared with the deleted events: a follower that would miss deleted events gets 410 and the oldest
position that is still stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.events import Event, Events, EventsQuery, StreamQuery
from gpuaas_contract.paths import Path
from gpuaas_contract.wire import NoBody

from gpuaas_platform.call import Call, Owned
from gpuaas_platform.kit import db
from gpuaas_platform.record import rules, store

PLATFORM = "platform"


@dataclass(frozen=True)
class Filters:
    app_instance_id: str = ""
    correlation_id: str = ""


EVERYTHING = Filters()


async def poll(call: Call[Path, EventsQuery], _: NoBody) -> Events:
    """Return the events after the caller's position; wait if there are none yet."""
    query, scope, filters = call.query, scope_of(call.owner), filters_of(call.query)

    async def look() -> Events:
        events, cursor = await after(call.site.database.reader, scope, query.after, query.limit, filters)
        return Events(items=list(events), cursor=cursor)

    return await call.poll(topic(scope), query.wait_s, look, lambda page: bool(page.items))


def topic(scope: str) -> str:
    return f"events:{scope}"


def scope_of(owned: Owned) -> str:
    """Return the record to which events of this owner belong: the project, else the organisation or the platform."""
    return owned.project_id or owned.org_id or PLATFORM


def filters_of(query: EventsQuery | StreamQuery) -> Filters:
    """Return the filters of a query. Only queries of project events can filter by instance."""
    return Filters(getattr(query, "app_instance_id", ""), query.correlation_id)


async def after(
    reader: db.Reader, scope: str, position: int, limit: int, filters: Filters = EVERYTHING
) -> tuple[Sequence[Event], int]:
    """Return the events after `position`, and the next position.

    Cursors are in commit order, so after `newest` is read no event can appear at or below it. If the filters exclude
    all events, the position moves to `newest`, so that a filter without matches does not fall behind retention.
    """
    newest = await store.newest_cursor(reader, scope)
    events = await store.events_after(reader, scope, position, limit, filters.app_instance_id, filters.correlation_id)
    await check(reader, scope, position, newest)
    if len(events) == limit:
        return events, events[-1].cursor
    return events, max([position, newest, *(event.cursor for event in events[-1:])])


async def check(reader: db.Reader, scope: str, position: int, newest: int) -> None:
    """Refuse a position after which events were deleted, or that was lost when the platform was restored from a backup.

    Call it after the read: deletions after that do not matter."""
    forgotten_to, lost_to = await store.limits(reader, scope, position)
    details = {"oldest": max(forgotten_to, lost_to) + 1, "newest": newest}
    if lost_to:
        raise errors.CursorExpired("The events before this cursor were lost: a backup was restored.", details=details)
    if rules.is_forgotten(position, forgotten_to):
        raise errors.CursorExpired(f"Events up to {forgotten_to} are no longer kept.", details=details)
    if position > newest and position > await store.newest_cursor_anywhere(reader):
        raise errors.CursorExpired(f"There is no cursor {position} yet: it comes from another record.", details=details)
