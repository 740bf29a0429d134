"""Loops: a missing condition is logged once and retried after growing pauses; a wake is handled at once."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import structlog
from gpuaas_platform.kit import hub, loop

TOPIC = "things"
HOUR_S = 3600.0


async def _swept(*ends: Exception | None) -> list[str]:
    """Wake a loop once for each of these results of its sweep and return what it logs."""
    wakes, left, done = hub.Hub(), list(ends), asyncio.Event()

    async def sweep() -> None:
        end = left.pop(0)
        if left:
            wakes.notify(TOPIC)
        else:
            done.set()
        if end is not None:
            raise end

    with structlog.testing.capture_logs() as lines:
        await _run_until(done, lambda: loop.run(wakes, TOPIC, HOUR_S, sweep))
    return [f"{line['log_level']} {line.get('missing', line['event'])}" for line in lines]


async def _run_until(done: asyncio.Event, start: Callable[[], Awaitable[None]]) -> None:
    task = asyncio.ensure_future(start())
    await done.wait()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_missing_condition_is_logged_once_until_the_loop_recovers() -> None:
    refused, gone = loop.Later("refused"), loop.Later("gone")
    assert await _swept(refused, refused, gone, gone, None, None, refused) == [
        "warning refused",
        "warning gone",
        "info loop.recovered",
        "warning refused",
    ]


async def test_a_sweep_that_fails_is_logged_each_time() -> None:
    assert await _swept(ValueError(), ValueError()) == ["error loop.sweep_failed"] * 2


def test_pauses_grow_to_a_minute_and_are_never_shorter_than_the_interval() -> None:
    assert [loop.pause_s(1.0, tries) for tries in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert loop.pause_s(1.0, 5000) == 60
    assert loop.pause_s(HOUR_S, 3) == HOUR_S


@pytest.mark.parametrize("turns", range(5))
async def test_a_loop_that_is_cancelled_in_the_moment_it_is_woken_ends(turns: int) -> None:
    wakes, swept = hub.Hub(), asyncio.Event()

    async def sweep() -> None:
        swept.set()

    task = asyncio.create_task(loop.run(wakes, TOPIC, HOUR_S, sweep))
    await swept.wait()
    await _turns_of_the_event_loop(5)
    wakes.notify(TOPIC)
    await _turns_of_the_event_loop(turns)
    task.cancel()
    ended, _ = await asyncio.wait({task}, timeout=60)
    assert ended == {task}


async def _turns_of_the_event_loop(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
