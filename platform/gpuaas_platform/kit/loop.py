"""A loop is woken, never told: it runs its sweep when a topic wakes it and at a steady interval, whatever happens.

A sweep that lacks something from outside raises `Later`: the loop says so once and asks less and less often.
"""

from collections.abc import Awaitable, Callable

import structlog

from gpuaas_platform.kit import hub

log = structlog.get_logger()

_PAUSE_S_MAX = 60.0
_DOUBLINGS_MAX = 10


class Later(Exception):
    """Somebody outside has to act first, and asking at once does not help. Its text says what is missing."""


async def run(wakes: hub.Hub, topic: str, interval_s: float, sweep: Callable[[], Awaitable[None]]) -> None:
    missing, tries = "", 0
    with wakes.listen(topic) as listener:
        while True:
            try:
                await sweep()
                if missing:
                    log.info("goes on", loop=topic)
                missing, tries = "", 0
            except Later as later:
                if str(later) != missing:
                    log.warning("cannot go on, asking again less and less often", loop=topic, why=str(later))
                missing, tries = str(later), tries + 1
            except Exception:
                log.exception("sweep failed, trying again", loop=topic)
            await hub.wait(listener, pause_s(interval_s, tries))


def pause_s(interval_s: float, tries: int) -> float:
    """After so many tries in a row that lacked something."""
    return max(interval_s, min(interval_s * 2.0 ** min(tries, _DOUBLINGS_MAX), _PAUSE_S_MAX))
