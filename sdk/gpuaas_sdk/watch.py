"""Follow a project's events for as long as somebody listens. `client` asks; this keeps the place."""

from collections.abc import AsyncIterator, Awaitable, Callable

from gpuaas_contract.events import Event, Events

Ask = Callable[[int], Awaitable[Events]]
"""Events behind a cursor, waited for. Tries again by itself while the server is away."""


async def follow(ask: Ask, after: int) -> AsyncIterator[Event]:
    """Every event behind `after`, once and in order. The place is kept here, so a restart of the server is no gap."""
    cursor = after
    while True:
        told = await ask(cursor)
        for event in told.items:
            yield event
        cursor = told.cursor
