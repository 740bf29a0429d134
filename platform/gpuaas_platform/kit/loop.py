"""A loop is woken, never told: it runs its sweep when a topic wakes it and at a steady interval, whatever happens."""

from collections.abc import Awaitable, Callable

import structlog

from gpuaas_platform.kit import hub

log = structlog.get_logger()


async def run(wakes: hub.Hub, topic: str, interval_s: float, sweep: Callable[[], Awaitable[None]]) -> None:
    with wakes.listen(topic) as listener:
        while True:
            try:
                await sweep()
            except Exception:
                log.exception("sweep failed, trying again", loop=topic)
            await hub.wait(listener, interval_s)
