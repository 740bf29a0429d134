"""Programs that keep running on machines between looks, and the newest line of each."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from gpuaas_sdk.controller.samples import LINES_PER_S_MAX, Samples, Silent
from gpuaas_sdk.machine import Machine, MachineUnreachable
from gpuaas_sdk.testing.machines import FakeHost


class Watching:
    """A fake host on which a program runs, and how often it was started."""

    def __init__(self) -> None:
        self.host = FakeHost("gpu-1")
        self.starts, self.now_s = 0, 0.0
        self.changes: asyncio.Queue[None] = asyncio.Queue()
        self.samples = Samples(lambda: self.changes.put_nowait(None), clock=lambda: self.now_s)

    def lines(self) -> AsyncGenerator[str]:
        self.starts += 1
        return Machine(self.host).lines("print('…')")

    async def newest(self, silent_s: float = 5) -> str:
        return await self.samples.newest("watch", self.lines, silent_s=silent_s)

    async def until_changed(self) -> None:
        async with asyncio.timeout(5):
            await self.changes.get()

    async def until_it_ends(self) -> None:
        async with asyncio.timeout(5):
            while True:
                await self.newest()
                await asyncio.sleep(0.01)


async def test_a_program_is_started_once_and_its_newest_line_returned() -> None:
    watching = Watching()
    watching.host.printed = ["one"]
    assert await watching.newest() == "one"
    watching.host.printed.append("two")
    await watching.until_changed()
    assert (await watching.newest(), watching.starts) == ("two", 1)
    await watching.samples.close()


async def test_a_line_that_is_printed_again_is_a_sign_of_life_and_no_change() -> None:
    watching = Watching()
    watching.host.printed = ["same"]
    await watching.newest()
    watching.host.printed += ["same", "same", "other"]
    await watching.until_changed()
    assert (await watching.newest(), watching.changes.qsize()) == ("other", 0)
    await watching.samples.close()


async def test_a_program_that_prints_without_end_waits_and_does_not_take_all_the_time_of_the_process() -> None:
    pauses: list[float] = []
    changes: list[None] = []
    is_over = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await is_over.wait()

    host = FakeHost("gpu-1")
    host.printed = [str(number) for number in range(1000)]
    samples = Samples(lambda: changes.append(None), clock=lambda: 0.25, sleep=pause)
    line = await samples.newest("watch", lambda: Machine(host).lines("print('…')"), silent_s=5)
    assert (line, len(changes), pauses) == (str(LINES_PER_S_MAX - 1), LINES_PER_S_MAX - 1, [0.75])
    await samples.close()


async def test_after_a_change_the_line_that_may_have_been_observed_before_it_is_not_returned() -> None:
    watching = Watching()
    watching.host.printed = ["before"]
    await watching.newest()
    watching.samples.outdate()
    fresh = asyncio.create_task(watching.newest())
    watching.host.printed.append("observed before, printed after")
    await watching.until_changed()
    assert not fresh.done()
    watching.host.printed.append("after")
    assert (await fresh, watching.starts) == ("after", 1)
    await watching.samples.close()


async def test_a_program_that_prints_no_newer_line_after_a_change_is_silent() -> None:
    watching = Watching()
    watching.host.printed = ["before"]
    await watching.newest()
    watching.samples.outdate()
    with pytest.raises(Silent):
        await watching.newest(silent_s=0.05)
    assert (await watching.newest(), watching.starts) == ("before", 2)
    await watching.samples.close()


async def test_a_program_that_falls_silent_is_reported_and_started_again() -> None:
    watching = Watching()
    watching.host.printed = ["one"]
    await watching.newest()
    watching.now_s = 6.0
    with pytest.raises(Silent, match="printed nothing for 5 s"):
        await watching.newest()
    assert (await watching.newest(), watching.starts) == ("one", 2)
    await watching.samples.close()


async def test_a_program_that_never_prints_is_silent() -> None:
    watching = Watching()
    with pytest.raises(Silent):
        await watching.newest(silent_s=0.05)
    await watching.samples.close()


async def test_the_error_that_ended_a_program_is_raised_and_the_next_look_starts_it_again() -> None:
    watching = Watching()
    watching.host.printed = ["one"]
    await watching.newest()
    watching.host.reachable = False
    with pytest.raises(MachineUnreachable):
        await watching.until_it_ends()
    watching.host.reachable = True
    assert (await watching.newest(), watching.starts) == ("one", 2)
    await watching.samples.close()


async def test_a_program_whose_connection_does_not_close_counts_as_silent_at_once() -> None:
    """A machine that is frozen or cut off does not confirm the end of a program."""
    samples, is_closed = Samples(lambda: None), asyncio.Event()

    async def lines() -> AsyncGenerator[str]:
        try:
            yield "one"
            await asyncio.Event().wait()
        finally:
            await is_closed.wait()

    assert await samples.newest("watch", lines, silent_s=0.05) == "one"
    samples.outdate()
    async with asyncio.timeout(5):
        with pytest.raises(Silent):
            await samples.newest("watch", lines, silent_s=0.05)
        assert await samples.newest("watch", lines, silent_s=5) == "one", "another one is started"
    is_closed.set()
    await samples.close()


async def test_the_silence_of_a_program_causes_a_look() -> None:
    watching = Watching()
    watching.host.printed = ["one"]
    await watching.newest(silent_s=0.05)
    await watching.until_changed()
    watching.now_s = 0.06
    with pytest.raises(Silent):
        await watching.newest(silent_s=0.05)
    await watching.samples.close()
