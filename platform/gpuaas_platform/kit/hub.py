"""Wake-ups inside one process. A waiter listens, reads the truth, then waits: a missed wake costs delay only."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Iterator


class Hub:
    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Event]] = defaultdict(set)

    def notify(self, topic: str) -> None:
        for listener in self._listeners.get(topic, ()):
            listener.set()

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


async def wait(listener: asyncio.Event, timeout_s: float) -> None:
    """Until the next wake or the timeout, whichever comes first; then ready to wait again."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(listener.wait(), timeout_s)
    listener.clear()
