"""Long polls: a wake-up is never lost between a look and the wait after it."""

import asyncio

from gpuaas_platform.kit import hub

TOPIC = "things"
DEADLINE_S = 10
"""Far less than the poll may wait, so that only a wake-up ends it in time."""


async def test_a_wake_that_comes_during_a_look_makes_the_poll_look_again() -> None:
    wakes, looks = hub.Hub(), 0

    async def look() -> int:
        nonlocal looks
        looks += 1
        if looks == 1:
            wakes.notify(TOPIC)
        return looks

    async with asyncio.timeout(DEADLINE_S):
        assert await wakes.poll(TOPIC, hub.WAIT_MAX_S, look, lambda answer: answer == 2) == 2
