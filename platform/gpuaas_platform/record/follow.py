"""Follow one record of events, by position: what `routes` needs for the long poll and `watch` for the stream.

A record is named by its scope: a project, an organisation or the platform, each of which has events of its own.
Whatever a follower reads is checked against retention after the read, so that it never skips in silence what was
forgotten: the answer is 410, and where to go on from.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuaas_contract import errors
from gpuaas_contract.event_types import Level
from gpuaas_contract.events import Event, EventsQuery, ProjectEventsQuery, ProjectStreamQuery, StreamQuery

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db
from gpuaas_platform.record import rules, store

TOPIC = "events"
PLATFORM = "platform"


@dataclass(frozen=True)
class Filters:
    app_instance_id: str = ""
    correlation_id: str = ""


EVERYTHING = Filters()


def topic(scope: str) -> str:
    return f"{TOPIC}:{scope}"


def place(project_id: str, org_id: str) -> tuple[Level, str]:
    """The level and the scope that something belongs to: the narrowest it names."""
    if project_id:
        return "project", project_id
    return ("org", org_id) if org_id else ("platform", PLATFORM)


def scope_of(call: Call) -> str:
    _, scope = place(call.params.get("project_id", ""), call.params.get("org_id", ""))
    return scope


def filters_of(query: EventsQuery | StreamQuery) -> Filters:
    instance_id = query.app_instance_id if isinstance(query, ProjectEventsQuery | ProjectStreamQuery) else ""
    return Filters(instance_id, query.correlation_id)


async def after(
    reader: db.Reader, scope: str, position: int, limit: int, filters: Filters = EVERYTHING
) -> tuple[Sequence[Event], int]:
    """Events behind `position`, and the position to go on from.

    Cursors are in commit order, so nothing can still appear at or below a cursor that was seen before the read: where
    the filters leave everything out, the position moves there, and a quiet filter never falls behind retention.
    """
    newest = await store.newest_cursor(reader, scope)
    found = await store.events_after(reader, scope, position, limit, filters.app_instance_id, filters.correlation_id)
    await check(reader, scope, position, newest)
    if len(found) == limit:
        return found, found[-1].cursor
    return found, max([position, newest, *(event.cursor for event in found[-1:])])


async def check(reader: db.Reader, scope: str, position: int, newest: int) -> None:
    """Whether the record is whole behind `position`. Asked after reading, or it could be forgotten in between."""
    forgotten_to = await store.forgotten_to(reader, scope)
    details = {"oldest": forgotten_to + 1, "newest": newest}
    if rules.is_forgotten(position, forgotten_to):
        raise errors.CursorExpired(f"Events up to {forgotten_to} are no longer kept.", details=details)
    if position > newest and position > await store.newest_cursor_anywhere(reader):
        raise errors.CursorExpired(f"There is no cursor {position} yet: it comes from another record.", details=details)
