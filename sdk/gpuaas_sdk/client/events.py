"""Follow a list of events without an end. `Client.events` and `Client.follow` use it."""

from collections.abc import AsyncIterator, Awaitable, Callable

from gpuaas_contract.events import Event, Events

Ask = Callable[[int], Awaitable[Events]]
"""Return the events after a cursor, waiting for the first. Retries by itself while the server is unreachable."""


async def follow(ask: Ask, after: int) -> AsyncIterator[Event]:
    """Yield every event after the cursor, once and in order. A restart of the server leaves no gap."""
    cursor = after
    while True:
        batch = await ask(cursor)
        for event in batch.items:
            yield event
        cursor = batch.cursor
