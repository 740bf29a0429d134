"""Programs that keep running on machines between looks, and the newest line that each of them printed.

A look that asks the machine each time costs a command each time. A program that prints a line when something changes
costs nothing while nothing changes, and the change is known at once. `Reconciliation.sample` uses this."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field

from gpuaas_sdk.failures import Temporary

CLOSE_S = 5.0
"""How long the end of programs may take."""
LINES_PER_S_MAX = 20
"""More lines of a program wait on its machine. Each changed line causes a look, and one process looks at the instances
of many tenants: a machine that prints without end must not take its time from the others."""
_LATER_S = 0.05
"""A look that a silence causes comes a little later than the silence begins, so that it sees it."""

OpenLines = Callable[[], AsyncGenerator[str]]
"""Starts a program on a machine and yields the lines that it prints."""


class Silent(Temporary):
    """The program printed nothing for longer than it may."""


@dataclass
class _Program:
    task: asyncio.Task[None] | None = None
    line: str = ""
    printed_at: float | None = None
    """When it printed its newest line; none: it has printed none yet."""
    lines_count: int = 0
    lines_wanted: int = 1
    """The newest line is returned only when so many were printed: those before may show an older state."""
    news: asyncio.Event = field(default_factory=asyncio.Event)
    second_began_at: float = 0.0
    lines_in_second: int = 0
    silence: asyncio.TimerHandle | None = None
    """Causes a look when the program was silent for too long."""


class Samples:
    """The programs of one instance, by name."""

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`on_change` is called when a program prints another line than before, or none for too long."""
        self._on_change = on_change
        self._clock = clock
        self._sleep = sleep
        self._programs: dict[str, _Program] = {}
        self._ending: set[asyncio.Task[None]] = set()
        """Programs that were ended and whose connections are not closed yet."""

    async def newest(self, name: str, open_lines: OpenLines, *, silent_s: float) -> str:
        """Return the newest line of the program; start it if it does not run, and wait for a line that is not outdated.

        Raises the error that ended the program, or `Silent` if it printed nothing for `silent_s`. The next call starts
        it again."""
        program = self._programs.get(name)
        if program is None:
            program = self._programs[name] = _Program()
            program.task = asyncio.create_task(self._read(program, open_lines, silent_s))
        try:
            await self._wanted_line(program, silent_s)
        except Exception:
            self._end(name)
            raise
        return program.line

    def outdate(self) -> None:
        """Return no line from now on that shows the state before this moment.

        A program observes, then prints, then observes again. The next line of one that runs may show what it observed
        before this moment; the line after it does not."""
        for program in self._programs.values():
            program.lines_wanted = program.lines_count + 2

    async def close(self) -> None:
        """End every program. A machine that does not confirm the end in time is left alone: its connection ends too."""
        for name in list(self._programs):
            self._end(name)
        if self._ending:
            await asyncio.wait(self._ending, timeout=CLOSE_S)

    async def _wanted_line(self, program: _Program, silent_s: float) -> None:
        assert program.task is not None
        is_silent = False
        while program.lines_count < program.lines_wanted and not program.task.done() and not is_silent:
            is_silent = not await self._next_line(program, program.task, silent_s)
        if program.task.done():
            program.task.result()
            raise Silent("the program on the machine ended")
        if is_silent or program.printed_at is None or self._clock() - program.printed_at > silent_s:
            raise Silent(f"the program on the machine printed nothing for {silent_s:g} s")

    async def _next_line(self, program: _Program, reading: asyncio.Task[None], silent_s: float) -> bool:
        """Wait until the program prints or ends. Return False if it does neither."""
        program.news.clear()
        news = asyncio.create_task(program.news.wait())
        try:
            done, _ = await asyncio.wait({news, reading}, timeout=silent_s, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            news.cancel()

    async def _read(self, program: _Program, open_lines: OpenLines, silent_s: float) -> None:
        async with aclosing(open_lines()) as lines:
            async for line in lines:
                is_change = program.printed_at is not None and line != program.line
                program.line, program.printed_at = line, self._clock()
                program.lines_count += 1
                program.news.set()
                self._wake_at_silence(program, silent_s)
                if is_change:
                    self._on_change()
                await self._slow_down(program)

    async def _slow_down(self, program: _Program) -> None:
        """Read no further line in this second if there were many."""
        now = self._clock()
        if now - program.second_began_at >= 1.0:
            program.second_began_at, program.lines_in_second = now, 0
        program.lines_in_second += 1
        if program.lines_in_second >= LINES_PER_S_MAX:
            await self._sleep(1.0 - (now - program.second_began_at))

    def _wake_at_silence(self, program: _Program, silent_s: float) -> None:
        if program.silence is not None:
            program.silence.cancel()
        program.silence = asyncio.get_running_loop().call_later(silent_s + _LATER_S, self._on_change)

    def _end(self, name: str) -> None:
        """End the program without waiting: a machine that is frozen or cut off does not confirm the end."""
        program = self._programs.pop(name)
        if program.silence is not None:
            program.silence.cancel()
        if program.task is not None:
            self._ending.add(program.task)
            program.task.add_done_callback(self._ended)
            program.task.cancel()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # it is known, or not needed any more
