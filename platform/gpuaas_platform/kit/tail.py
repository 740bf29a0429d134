"""Keep the newest part of an event record in memory, once per topic, for any number of watchers.

One task per topic reads what each commit added and keeps it as encoded frames in a ring buffer. A watcher has only a
position: it takes the frames after its position, or waits for `changed`. A watcher that is too slow for the ring reads
from the store again, so no watcher needs a queue and none can block another.
"""

import asyncio
import bisect
import contextvars
import operator
from typing import NamedTuple, Protocol

import structlog

from gpuaas_platform.kit import hub

log = structlog.get_logger()

READ_MAX = 500
_FRAMES_MAX = 1024
_BYTES_MAX = 1_048_576


class Frame(NamedTuple):
    cursor: int
    labels: tuple[str, ...]
    """The values that a watcher's filter compares."""
    data: bytes


class Record(Protocol):
    """The source of frames. Cursors grow in the order of commits."""

    async def newest(self) -> int: ...

    async def after(self, cursor: int, limit: int) -> list[Frame]: ...


class Tail:
    def __init__(self, topic: str, wakes: hub.Hub, record: Record, tick_s: float) -> None:
        self._topic, self._wakes, self._record, self._tick_s = topic, wakes, record, tick_s
        self._frames: list[Frame] = []
        self._bytes = 0
        self._changed = asyncio.Event()
        self.newest = 0
        self.floor: int | None = None
        """The ring contains all frames after this cursor; None before the first read, when the ring is not usable."""
        self.ended = False
        self.watchers = 0

    def changed(self) -> asyncio.Event:
        """Return the event that is set at the next change or tick. Get it before reading, to miss no change."""
        return self._changed

    def behind(self, position: int) -> list[Frame]:
        """Return the frames after `position`, which must not be below the floor."""
        if position >= self.newest:
            return []
        return self._frames[bisect.bisect_right(self._frames, position, key=operator.attrgetter("cursor")) :]

    def poke(self) -> None:
        """Wake all watchers."""
        present, self._changed = self._changed, asyncio.Event()
        present.set()

    async def run(self) -> None:
        with self._wakes.listen(self._topic) as listener:
            while not self._wakes.closing:
                if not await self._advance():
                    await listener.wait(self._tick_s)
                    self.poke()
        self.ended = True
        self.poke()

    async def _advance(self) -> bool:
        """Read new frames into the ring; return whether there may be more."""
        try:
            if self.floor is None:
                self.floor = self.newest = await self._record.newest()
                self.poke()
            frames = await self._record.after(self.newest, READ_MAX)
        except Exception:
            log.exception("tail.read_failed", topic=self._topic)
            # Without a floor, watchers read from the store until the ring is filled again.
            self.floor, self._bytes = None, 0
            self._frames.clear()
            return False
        if frames:
            self._keep(frames)
            self.poke()
        return len(frames) == READ_MAX

    def _keep(self, frames: list[Frame]) -> None:
        self._frames += frames
        self._bytes += sum(len(frame.data) for frame in frames)
        self.newest = frames[-1].cursor
        drop = max(0, len(self._frames) - _FRAMES_MAX)
        left = self._bytes - sum(len(frame.data) for frame in self._frames[:drop])
        while left > _BYTES_MAX and drop < len(self._frames):
            left -= len(self._frames[drop].data)
            drop += 1
        if drop:
            self.floor = self._frames[drop - 1].cursor
            del self._frames[:drop]
        self._bytes = left


class Tails:
    """The tails that have watchers, by topic."""

    def __init__(self, wakes: hub.Hub, tick_s: float) -> None:
        self._wakes, self._tick_s = wakes, tick_s
        self._open: dict[str, tuple[Tail, asyncio.Task[None]]] = {}

    def join(self, topic: str, record: Record) -> Tail:
        if topic not in self._open:
            tail = Tail(topic, self._wakes, record, self._tick_s)
            # The task gets its own context, so that its log lines do not carry the fields of the first request.
            task = asyncio.create_task(tail.run(), name=f"tail {topic}", context=contextvars.Context())
            self._open[topic] = tail, task
        tail, _ = self._open[topic]
        tail.watchers += 1
        return tail

    def leave(self, topic: str, tail: Tail) -> None:
        tail.watchers -= 1
        if tail.watchers == 0 and self._open[topic][0] is tail:
            _, task = self._open.pop(topic)
            task.cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._open.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
