"""Wake-ups inside one process, and long polls that use them.

A waiter starts to listen, reads the store, then waits. A missed wake-up only causes a delay."""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

Answer = TypeVar("Answer")
WAIT_MAX_S = 30.0


class Check:
    """Raises if a long poll must end without an answer. It runs after each wake-up, and at intervals without one."""

    def __init__(self, check: Callable[[], Awaitable[object]], every_s: float) -> None:
        self._check, self._every_s = check, every_s
        self._due_at = time.monotonic() + every_s

    def due_in_s(self) -> float:
        return self._due_at - time.monotonic()

    async def run(self) -> None:
        await self._check()
        self._due_at = time.monotonic() + self._every_s


class Listener:
    """Waits for wake-ups of a topic. Like `asyncio.Event`, but for one waiter, with a timeout and without a queue of
    800 bytes: tens of thousands of long polls wait at the same time."""

    __slots__ = ("_waiting", "is_woken")

    def __init__(self) -> None:
        self.is_woken = False
        self._waiting: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self.is_woken = True
        _end(self._waiting)

    async def wait(self, timeout_s: float) -> bool:
        """Wait for the next wake-up or the timeout, then reset the listener. Return whether there was a wake-up."""
        if not self.is_woken:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            timer = loop.call_later(timeout_s, _end, self._waiting)
            try:
                await self._waiting
            finally:
                timer.cancel()
                self._waiting = None
        was_woken, self.is_woken = self.is_woken, False
        return was_woken


def _end(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)


class Hub:
    def __init__(self) -> None:
        self._listeners: dict[str, set[Listener]] = defaultdict(set)
        self.closing = False
        self.waiting = 0
        """Number of long polls that currently wait."""

    def notify(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener.wake()

    def notify_all(self) -> None:
        """Wake every listener. Used if wake-ups may have been missed."""
        for topic in list(self._listeners):
            self.notify(topic)

    def close(self) -> None:
        """End every long poll and every stream now, because the server stops. They return their last result."""
        self.closing = True
        self.notify_all()

    @contextlib.contextmanager
    def listen(self, topic: str) -> Iterator[Listener]:
        listener = self._added(topic)
        try:
            yield listener
        finally:
            self._remove(topic, listener)

    def _added(self, topic: str) -> Listener:
        listener = Listener()
        self._listeners[topic].add(listener)
        return listener

    def _remove(self, topic: str, listener: Listener) -> None:
        self._listeners[topic].discard(listener)
        if not self._listeners[topic]:
            del self._listeners[topic]

    async def poll(
        self,
        topic: str,
        wait_s: float,
        look: Callable[[], Awaitable[Answer]],
        enough: Callable[[Answer], bool],
        *,
        look_every_s: float = WAIT_MAX_S,
        check: Check | None = None,
    ) -> Answer:
        """Call `look` now and after each wake-up, until `enough` accepts its answer or the time is over; return it."""
        ends_at = time.monotonic() + max(0.0, min(wait_s, WAIT_MAX_S))
        listener = self._added(topic)  # not `listen`: its context manager would be kept in memory by each long poll
        try:
            while True:
                answer = await look()
                left_s = ends_at - time.monotonic()
                if enough(answer) or left_s <= 0 or self.closing:
                    return answer
                self.waiting += 1
                try:
                    await _wait_checked(listener, min(left_s, look_every_s), check)
                finally:
                    self.waiting -= 1
        finally:
            self._remove(topic, listener)


async def _wait_checked(listener: Listener, timeout_s: float, check: Check | None) -> None:
    if check is None:
        await listener.wait(timeout_s)
        return
    ends_at, is_woken = time.monotonic() + timeout_s, False
    while not is_woken and (left_s := ends_at - time.monotonic()) > 0:
        is_woken = await listener.wait(max(0.0, min(left_s, check.due_in_s())))
        if is_woken or check.due_in_s() <= 0:
            await check.run()
