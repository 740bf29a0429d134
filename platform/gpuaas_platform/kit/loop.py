"""Run a sweep when its topic is woken, and at intervals. A wake-up carries no data: the sweep reads the store.

A sweep raises `Later` if something outside the process is missing. The loop logs this once and increases the pause.
"""

from collections.abc import Awaitable, Callable

import structlog

from gpuaas_platform.kit import hub

log = structlog.get_logger()

_PAUSE_S_MAX = 60.0
_DOUBLINGS_MAX = 10


class Later(Exception):
    """Something outside the process is missing, so an immediate retry does not help. The text names what is missing."""


async def run(wakes: hub.Hub, topic: str, interval_s: float, sweep: Callable[[], Awaitable[None]]) -> None:
    missing, tries = "", 0
    with wakes.listen(topic) as listener:
        while True:
            try:
                await sweep()
                if missing:
                    log.info("loop.recovered", loop=topic)
                missing, tries = "", 0
            except Later as later:
                if str(later) != missing:
                    log.warning("loop.waiting", loop=topic, missing=str(later))
                missing, tries = str(later), tries + 1
            except Exception:
                log.exception("loop.sweep_failed", loop=topic)
            await listener.wait(pause_s(interval_s, tries))


def pause_s(interval_s: float, tries: int) -> float:
    """Return the pause in seconds after `tries` consecutive attempts that raised `Later`."""
    return max(interval_s, min(interval_s * 2.0 ** min(tries, _DOUBLINGS_MAX), _PAUSE_S_MAX))
