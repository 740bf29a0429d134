"""One stream of server-sent events: its position in one record, and the tail that all streams of the record share.

A watch is opened before the first byte is sent; `edge.streams` reads bytes from it until one side ends the stream.
"""

import time

import msgspec
from gpuaas_contract import errors
from gpuaas_contract.events import Event, StreamQuery
from gpuaas_contract.paths import Path

from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, tail
from gpuaas_platform.record import follow, store


async def open_watch(call: Call[Path, StreamQuery]) -> "Watch":
    query, reader, scope = call.query, call.site.database.reader, follow.scope_of(call.owner)
    newest = await store.newest_cursor(reader, scope)
    await follow.check(reader, scope, query.after, newest)
    record = Record(reader, scope, follow.filters_of(query))
    return Watch(call.site.tails, record, query.after, call.site.settings.stream_silence_s_max)


class Record:
    """The events of one scope as frames, for its tail and for streams that are slower than the tail."""

    def __init__(self, reader: db.Reader, scope: str, filters: follow.Filters) -> None:
        self._reader, self._scope, self.filters = reader, scope, filters
        self.topic = follow.topic(scope)

    async def newest(self) -> int:
        return await store.newest_cursor(self._reader, self._scope)

    async def after(self, cursor: int, limit: int) -> list[tail.Frame]:
        """Return all events without filters, because streams with other filters share the tail."""
        events, _ = await follow.after(self._reader, self._scope, cursor, limit)
        return [_frame(event) for event in events]

    async def wanted_after(self, cursor: int) -> tuple[list[tail.Frame], int]:
        events, position = await follow.after(self._reader, self._scope, cursor, tail.READ_MAX, self.filters)
        return [_frame(event) for event in events], position


class Watch:
    """One stream. The object is small, because there are thousands of streams and most are idle."""

    __slots__ = ("_bookmark_after_s", "_ended", "_filters", "_position", "_record", "_sent_at", "_tail", "_tails")

    def __init__(self, tails: tail.Tails, record: Record, after: int, silence_s_max: float) -> None:
        self._tails, self._record, self._position = tails, record, after
        self._filters = None if record.filters == follow.EVERYTHING else record.filters
        # Checked on every tick. A tick is a third of the longest silence, so a bookmark is always sent in time.
        self._bookmark_after_s = silence_s_max * 2 / 3
        self._sent_at = time.monotonic()
        self._ended = False
        self._tail = tails.join(record.topic, record)

    async def next(self) -> bytes:
        """Return the events after the position, or a bookmark after a silence; empty if the stream has ended."""
        while True:
            changed = self._tail.changed()
            data = await self._new()
            if self._ended or self._tail.ended:
                return b""
            if not data and time.monotonic() - self._sent_at >= self._bookmark_after_s:
                # A bookmark has the position from which to resume, and shows that the connection works.
                data = b"id: %d\nevent: bookmark\ndata: {}\n\n" % self._position
            if data:
                self._sent_at = time.monotonic()
                return data
            await changed.wait()

    def end(self) -> None:
        """End the stream: the caller may no longer watch."""
        self._ended = True
        self._tail.poke()

    def close(self) -> None:
        self._tails.leave(self._record.topic, self._tail)

    async def _new(self) -> bytes:
        floor = self._tail.floor
        if floor is None or self._position < floor:
            return await self._from_store()
        frames = self._tail.behind(self._position)
        self._position = max(self._position, self._tail.newest)
        return b"".join([frame.data for frame in frames if self._filters is None or _matches(frame, self._filters)])

    async def _from_store(self) -> bytes:
        try:
            frames, self._position = await self._record.wanted_after(self._position)
        except (errors.CursorExpired, db.Unavailable):
            # Unread events were deleted, or the store does not answer: the client reconnects and gets the error.
            self._ended = True
            return b""
        return b"".join([frame.data for frame in frames])


def _matches(frame: tail.Frame, filters: follow.Filters) -> bool:
    instance_id, correlation_id = frame.labels
    return filters.app_instance_id in ("", instance_id) and filters.correlation_id in ("", correlation_id)


def _frame(event: Event) -> tail.Frame:
    data = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.cursor, event.type.encode(), msgspec.json.encode(event))
    return tail.Frame(event.cursor, (event.app_instance_id, event.correlation_id), data)
