"""Named checks of this process, which `/readyz` runs. `server` collects them in `Site.health`.

The store is checked by a real commit: a full disk or a read-only file system refuses nothing before that. A probe needs
no credentials, so this check runs at most once in an interval, and probes that arrive together share a run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from gpuaas_platform.kit import clock, db, disk

Check = Callable[[], Awaitable[str]]
"""Returns why the check failed, as a word or a short sentence without secrets; empty if it passed."""
ANSWER_S_MAX = 1.0
NO_ANSWER = "no_answer"


async def failed(checks: Mapping[str, Check]) -> dict[str, str]:
    """Run the checks; return the names of those that failed, with their reasons."""
    reasons = await asyncio.gather(*map(_reason, checks.values()))
    return {name: reason for name, reason in zip(checks, reasons, strict=True) if reason}


async def _reason(check: Check) -> str:
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            return await check()
    except TimeoutError:
        return NO_ANSWER


class Shared:
    """A check that runs at most once in an interval. A run that hangs is not started a second time."""

    def __init__(self, check: Check, interval_s: float) -> None:
        self._check, self._interval_s = check, interval_s
        self._run: asyncio.Future[str] | None = None
        self._started_s = 0.0

    async def __call__(self) -> str:
        run = self._run
        if run is None or (run.done() and time.monotonic() - self._started_s >= self._interval_s):
            run = self._run = asyncio.ensure_future(self._check())
            self._started_s = time.monotonic()
        return await asyncio.shield(run)


def store_check(database: db.Database, now: clock.Clock) -> Check:
    """Return the check that a write is committed."""

    async def write(tx: db.Tx) -> int:
        return await tx.run("UPDATE store_probe SET written_at = $1 WHERE probe = 1", clock.micros(now()))

    async def check() -> str:
        try:
            return "" if await database.write(write) == 1 else "row_missing"
        except db.Unavailable as error:
            return error.reason or NO_ANSWER

    return check


def disk_check(folder: Path) -> Check:
    """Return the check that the file system of the data folder can be written to."""

    async def check() -> str:
        try:
            return disk.space(folder).problem()
        except OSError:
            return "folder_missing"

    return check


def clock_check(guarded: clock.GuardedClock) -> Check:
    """Return the check that the machine's clock has not jumped."""

    async def check() -> str:
        used = guarded()
        if not guarded.jump_s:
            return ""
        return f"the clock of this machine jumped by {guarded.jump_s:+.0f} s; the platform uses {used:%FT%TZ}"

    return check
