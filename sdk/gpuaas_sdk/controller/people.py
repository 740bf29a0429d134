"""The people of the project for health handlers: read at most once per interval, and again as soon as they change."""

import asyncio
import math
import time
from collections.abc import Callable

import structlog
from gpuaas_contract.errors import ApiError
from gpuaas_contract.posix import POSIX_PEOPLE, POSIX_PEOPLE_DIGEST, PosixPerson
from gpuaas_contract.wire import PAGE_SIZE_MAX

from gpuaas_sdk.client import Client
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

WAIT_S = 25.0
"""How long one request waits at the platform for a change."""
RETRY_S = 30.0
"""Pause after the platform refused to wait: one of the release before cannot. The interval then finds changes."""


class People:
    """The people of one project, for all instances that this process looks after."""

    def __init__(self, client: Client, project_id: str, interval_s: float) -> None:
        self._client = client
        self._project_id = project_id
        self._interval_s = interval_s
        self._read_at = self._changed_at = -math.inf
        self._people: tuple[PosixPerson, ...] = ()
        self._lock = asyncio.Lock()
        self._is_used = asyncio.Event()
        self._known: str | None = None
        """Digest of a list that is not newer than the one in memory; empty if it could not be read."""

    async def read(self) -> tuple[PosixPerson, ...]:
        """Return the people as they were at most one interval ago, and not from before a change that is known."""
        async with self._lock:
            if self._known is None:
                self._known = await self._digest_now()
            if self._read_at < max(self._changed_at, time.monotonic() - self._interval_s):
                started, query = time.monotonic(), {"page_size": PAGE_SIZE_MAX}
                pages = self._client.pages(POSIX_PEOPLE, query=query, project_id=self._project_id)
                self._people, self._read_at = tuple([person async for person in pages]), started
        self._is_used.set()
        return self._people

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` after each change, until cancelled. Nothing is asked before a handler has read the people."""
        await self._is_used.wait()
        while True:
            try:
                digest = await self._digest(self._known or "", WAIT_S)
            except (ApiError, NoAnswer) as error:
                log.info("people.watch_failed", error=error.message, retry_in_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
                continue
            if digest != self._known:
                log.info("people.changed", project_id=self._project_id)
                self._known, self._changed_at = digest, time.monotonic()
                wake()

    async def _digest_now(self) -> str:
        try:
            return await self._digest("", 0)
        except (ApiError, NoAnswer):
            return ""

    async def _digest(self, known: str, wait_s: float) -> str:
        query = {"known": known, "wait_s": wait_s}
        return (await self._client.call(POSIX_PEOPLE_DIGEST, query=query, project_id=self._project_id)).digest
