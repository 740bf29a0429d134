"""Named questions with a reason, such as "does the scheduler answer?", and the wait for one to pass.

`Operation.until` waits in an operation; code that does not use the platform calls `until` itself."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import msgspec

from gpuaas_sdk.failures import Temporary


class Check(msgspec.Struct, frozen=True):
    """The result of a check. Users see the reason while it has not passed.

    Check(not jobs, f"{len(jobs)} jobs run on {machine.hostname}")"""

    ok: bool
    reason: str = ""


Ask = Callable[[], Awaitable[Check]]
Show = Callable[[str], Awaitable[None]]
"""Shows a line to the users who follow the operation."""


async def until(ask: Ask, *, within_s: float, every_s: float, show: Show) -> Check:
    """Repeat a check until it passes or the time is over; show each new reason once. Returns the last answer.

    A `Temporary` error counts as an answer that did not pass.

    async def answers() -> Check:
        return Check((await machine.run("kv", "ping", check=False)).exit_status == 0, "kv does not answer")

    check = await checks.until(answers, within_s=60, every_s=1, show=op.say)"""
    ends_at = time.monotonic() + within_s
    shown = ""
    while True:
        check = await _asked(ask)
        if check.ok or time.monotonic() >= ends_at:
            return check
        if check.reason != shown:
            shown = check.reason
            await show(shown)
        await asyncio.sleep(every_s)


async def _asked(ask: Ask) -> Check:
    try:
        return await ask()
    except Temporary as error:
        return Check(False, str(error))
