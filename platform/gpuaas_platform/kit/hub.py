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


class Hub:
    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Event]] = defaultdict(set)
        self.closing = False
        self.waiting = 0
        """Number of long polls that currently wait."""

    def notify(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener.set()

    def notify_all(self) -> None:
        """Wake every listener. Used if wake-ups may have been missed."""
        for topic in list(self._listeners):
            self.notify(topic)

    def close(self) -> None:
        """End every long poll and every stream now, because the server stops. They return their last result."""
        self.closing = True
        self.notify_all()

    @contextlib.contextmanager
    def listen(self, topic: str) -> Iterator[asyncio.Event]:
        listener = asyncio.Event()
        self._listeners[topic].add(listener)
        try:
            yield listener
        finally:
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
        with self.listen(topic) as listener:
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


async def _wait_checked(listener: asyncio.Event, timeout_s: float, check: Check | None) -> None:
    if check is None:
        await wait(listener, timeout_s)
        return
    ends_at, is_woken = time.monotonic() + timeout_s, False
    while not is_woken and (left_s := ends_at - time.monotonic()) > 0:
        is_woken = await wait(listener, min(left_s, check.due_in_s()))
        if is_woken or check.due_in_s() <= 0:
            await check.run()


async def wait(listener: asyncio.Event, timeout_s: float) -> bool:
    """Wait for the next wake-up or the timeout, then reset the listener. Return whether there was a wake-up."""
    # Not `wait_for`: in Python 3.11 it can lose a cancellation that arrives with the wake-up; a loop would never end.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await listener.wait()
    is_woken = listener.is_set()
    listener.clear()
    return is_woken
