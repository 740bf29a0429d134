"""One stream of events: a wake-up that comes while it reads is not lost."""

import asyncio

from gpuaas_platform.kit import hub, tail
from gpuaas_platform.record import follow, watch
from server_process import until

HOUR_S = 3600.0
DEADLINE_S = 10
"""Far less than a tick, so that only the wake-up sends the event in time."""
NEW = tail.Frame(6, ("", ""), b"the new event")


class _Record(watch.Record):
    """A record whose newest event is committed while the stream reads what was stored before it."""

    def __init__(self, wakes: hub.Hub) -> None:
        self.topic, self.filters = "events:p1", follow.EVERYTHING
        self.tail: tail.Tail
        self._wakes, self._frames = wakes, list[tail.Frame]()

    async def newest(self) -> int:
        return NEW.cursor - 1

    async def after(self, cursor: int, limit: int) -> list[tail.Frame]:
        return [frame for frame in self._frames if frame.cursor > cursor]

    async def wanted_after(self, cursor: int) -> tuple[list[tail.Frame], int]:
        await until(lambda: self.tail.floor is not None)
        self._frames.append(NEW)
        self._wakes.notify(self.topic)
        await until(lambda: self.tail.newest == NEW.cursor)
        return [], NEW.cursor - 1


async def test_an_event_that_comes_while_a_stream_reads_is_sent_at_once() -> None:
    wakes = hub.Hub()
    tails, record = tail.Tails(wakes, tick_s=HOUR_S), _Record(wakes)
    record.tail = tails.join(record.topic, record)
    stream = watch.Watch(tails, record, after=0, silence_s_max=HOUR_S)
    try:
        async with asyncio.timeout(DEADLINE_S):
            assert await stream.next() == NEW.data
    finally:
        stream.close()
        await tails.close()
