"""Read a list of events and wait for new ones forever. `Client.events` and `Client.follow` use it."""

from collections.abc import AsyncIterator, Awaitable, Callable

from gpuaas_contract.events import Event, Events

Ask = Callable[[int], Awaitable[Events]]
"""Returns the events after a cursor. Waits if there are none, and retries while the server is unreachable."""


async def follow(ask: Ask, after: int) -> AsyncIterator[Event]:
    """Yield every event after the cursor, once and in order. A restart of the server leaves no gap."""
    cursor = after
    while True:
        batch = await ask(cursor)
        for event in batch.items:
            yield event
        cursor = batch.cursor
