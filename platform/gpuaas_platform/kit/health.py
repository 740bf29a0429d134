"""Named checks of this process, which `/readyz` runs. A part adds its check to `Site.health` where `server` builds it.

A probe needs no credentials, so the checks run at most once in an interval, and probes that arrive together share a
run. The store is checked by a real commit: a full disk or a read-only file system refuses nothing before that.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from gpuaas_platform.kit import clock, db, disk

Check = Callable[[], Awaitable[str]]
"""Returns why the check failed, as a word or a short sentence without secrets; empty if it passed."""
ANSWER_S_MAX = 1.0
NO_ANSWER = "no_answer"


class Checks:
    """The checks by name. `failed` runs all of them."""

    def __init__(self, interval_s: float, **checks: Check) -> None:
        self._interval_s, self._checks = interval_s, dict(checks)
        self._runs: dict[str, tuple[float, asyncio.Future[str]]] = {}

    def add(self, name: str, check: Check) -> None:
        self._checks[name] = check

    async def failed(self) -> dict[str, str]:
        """Return the names of the checks that failed, with their reasons."""
        reasons = await asyncio.gather(*map(self._reason, self._checks))
        return {name: reason for name, reason in zip(self._checks, reasons, strict=True) if reason}

    async def _reason(self, name: str) -> str:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await asyncio.shield(self._run(name))
        except TimeoutError:
            return NO_ANSWER

    def _run(self, name: str) -> asyncio.Future[str]:
        """Return the last run of a check, or a new one. A check that hangs is not started a second time."""
        started_s, run = self._runs.get(name, (0.0, None))
        if run is None or (run.done() and time.monotonic() - started_s >= self._interval_s):
            run = asyncio.ensure_future(self._checks[name]())
            self._runs[name] = time.monotonic(), run
        return run


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
