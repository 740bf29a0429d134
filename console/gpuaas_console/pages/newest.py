"""The newest rows of lists that the platform sends oldest first: a window before a position is read, and a wider one if
it has few rows. So a long list is never read from its beginning."""

import datetime
from typing import Any

from gpuaas_cli import output
from gpuaas_contract.errors import CursorExpired
from gpuaas_contract.events import EVENT_LIST, Event
from gpuaas_contract.usage import USAGE_LIST, UsageRecord

from gpuaas_console.web import Failure, Visit

ROWS_WANTED = 100
ROWS_MAX = 500
WIDER = 8
WINDOWS_MAX = 6
EVENTS_BACK = 500
INSTANCE_BACK = 2000
"""How many events are searched for those of one instance. It has a limit: most of them can be of others."""
USAGE_BACK = datetime.timedelta(hours=6)
CURSOR_DIGITS_MAX = 18
YEARS = range(1970, 9999)
"""Years of a position. The widest window before it begins about 180 years earlier, which must be a time, too."""


async def events(visit: Visit, before: str) -> tuple[list[Event], str]:
    """Return the newest events before a cursor, newest first, and the cursor of the next older ones; empty: none."""
    end = _cursor(before) if before else await newest_cursor(visit) + 1
    span, rows = EVENTS_BACK, list[Event]()
    for _ in range(WINDOWS_MAX):
        start = max(0, end - 1 - span)
        rows, start = await _between(visit, start, end)
        if len(rows) >= ROWS_WANTED or start == 0:
            break
        span *= WIDER
    shown = rows[-ROWS_MAX:]
    return shown[::-1], str(shown[0].cursor) if shown and (start > 0 or len(rows) > ROWS_MAX) else ""


async def events_of(visit: Visit, instance_id: str) -> list[Event]:
    """Return the events of an instance among the newest of the project, newest first."""
    end = await newest_cursor(visit) + 1
    rows, _ = await _between(visit, max(0, end - INSTANCE_BACK), end, app_instance_id=instance_id)
    return rows[::-1]


async def newest_cursor(visit: Visit) -> int:
    # With a filter that matches nothing, the cursor moves past all events.
    return (await visit.calls().call(EVENT_LIST, query={"correlation_id": "-"})).cursor


async def _between(visit: Visit, start: int, end: int, **query: str) -> tuple[list[Event], int]:
    """Return the events after `start` and before `end`, and the start: the oldest stored event if it is later."""
    rows: list[Event] = []
    position = start
    while position < end - 1:
        asked: dict[str, Any] = {**query, "after": position, "limit": 500}
        try:
            page = await visit.calls().call(EVENT_LIST, query=asked)
        except CursorExpired as error:  # older events were deleted
            oldest = int(error.details.get("oldest", 0)) - 1
            if oldest <= position:
                raise
            position, start = oldest, 0
            continue
        rows += [event for event in page.items if event.cursor < end]
        if len(page.items) < 500:
            break
        position = page.cursor
    return rows, start


async def usage(visit: Visit, before: str) -> tuple[list[UsageRecord], str]:
    """Return the newest usage records that began before a time, newest first, and the time of the next older ones."""
    until = _time(before) if before else output.now() + datetime.timedelta(days=1)
    span, rows = USAGE_BACK + datetime.timedelta(days=0 if before else 1), list[UsageRecord]()
    for _ in range(WINDOWS_MAX + 1):
        query = {"since": _text(until - span), "until": _text(until)}
        rows = await visit.calls().every(USAGE_LIST, query=query)
        if len(rows) >= ROWS_WANTED:
            break
        span *= WIDER
    shown = rows[-ROWS_MAX:]
    older = len(rows) > ROWS_MAX or len(rows) >= ROWS_WANTED
    return shown[::-1], _text(shown[0].started_at) if shown and older else ""


def _cursor(text: str) -> int:
    if not text.isdecimal() or len(text) > CURSOR_DIGITS_MAX:
        raise _no_position(text)
    return int(text)


def _time(text: str) -> datetime.datetime:
    try:
        moment = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise _no_position(text) from error
    if moment.year not in YEARS:
        raise _no_position(text)
    return moment


def _no_position(text: str) -> Failure:
    return Failure(400, "This page does not exist", f"The list has no position {text[:40]!r}.", "Open the list again.")


def _text(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")
