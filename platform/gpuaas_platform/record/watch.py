"""One stream of server-sent events: a position in one record and the shared tail it hangs on.

`routes` opens it before the first byte is sent; `edge.streams` then takes bytes from it until either side ends.
"""

import time

import msgspec
from gpuaas_contract import errors, events
from gpuaas_contract.events import Event

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, tail
from gpuaas_platform.record import follow as following
from gpuaas_platform.record import store


async def open_watch(call: Call) -> "Watch":
    query: events.StreamQuery = call.query
    reader, scope = call.site.database.reader, following.scope_of(call)
    newest = await store.newest_cursor(reader, scope)
    await following.check(reader, scope, query.after, newest)
    record = Record(reader, scope, following.filters_of(query))
    return Watch(call.site.tails, record, query.after, call.site.settings.stream_silence_s_max)


class Record:
    """The events of one scope as frames, for its tail and for whoever is too slow for it."""

    def __init__(self, reader: db.Reader, scope: str, filters: following.Filters) -> None:
        self._reader, self._scope, self.filters = reader, scope, filters
        self.topic = following.topic(scope)

    async def newest(self) -> int:
        return await store.newest_cursor(self._reader, self._scope)

    async def after(self, cursor: int, limit: int) -> list[tail.Frame]:
        """Everything, whatever the filters: the tail is shared."""
        found, _ = await following.after(self._reader, self._scope, cursor, limit)
        return [_frame(event) for event in found]

    async def wanted_after(self, cursor: int) -> tuple[list[tail.Frame], int]:
        found, position = await following.after(self._reader, self._scope, cursor, tail.READ_MAX, self.filters)
        return [_frame(event) for event in found], position


class Watch:
    """Small on purpose: there are thousands of them, and most do nothing."""

    __slots__ = ("_bookmark_after_s", "_ended", "_filters", "_position", "_record", "_said_at", "_tail", "_tails")

    def __init__(self, tails: tail.Tails, record: Record, after: int, silence_s_max: float) -> None:
        self._tails, self._record, self._position = tails, record, after
        self._filters = None if record.filters == following.EVERYTHING else record.filters
        # Looked at on every tick, a third of the longest silence apart: so it is said in time.
        self._bookmark_after_s = silence_s_max * 2 / 3
        self._said_at = time.monotonic()
        self._ended = False
        self._tail = tails.join(record.topic, record)

    async def next(self) -> bytes:
        """Events behind the position, or a bookmark after a silence; nothing when the stream is over."""
        while True:
            changed = self._tail.changed()
            said = await self._new()
            if self._ended or self._tail.ended:
                return b""
            if not said and time.monotonic() - self._said_at >= self._bookmark_after_s:
                said = _bookmark(self._position)
            if said:
                self._said_at = time.monotonic()
                return said
            await changed.wait()

    def end(self) -> None:
        """From outside: the caller may no longer watch."""
        self._ended = True
        self._tail.poke()

    def close(self) -> None:
        self._tails.leave(self._record.topic, self._tail)

    async def _new(self) -> bytes:
        floor = self._tail.floor
        if floor is None or self._position < floor:
            return await self._from_store()
        found = self._tail.behind(self._position)
        self._position = max(self._position, self._tail.newest)
        return b"".join([frame.data for frame in found if self._filters is None or _matches(frame, self._filters)])

    async def _from_store(self) -> bytes:
        try:
            found, self._position = await self._record.wanted_after(self._position)
        except (errors.CursorExpired, db.Unavailable):
            # Slower than retention, or the store is away: the reader comes back with its position and is told so.
            self._ended = True
            return b""
        return b"".join([frame.data for frame in found])


def _matches(frame: tail.Frame, filters: following.Filters) -> bool:
    instance_id, correlation_id = frame.labels
    return filters.app_instance_id in ("", instance_id) and filters.correlation_id in ("", correlation_id)


def _frame(event: Event) -> tail.Frame:
    data = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.cursor, event.type.encode(), msgspec.json.encode(event))
    return tail.Frame(event.cursor, (event.app_instance_id, event.correlation_id), data)


def _bookmark(position: int) -> bytes:
    """Says where to resume and that the connection lives; a client has nothing else to do with it."""
    return b"id: %d\nevent: bookmark\ndata: {}\n\n" % position
