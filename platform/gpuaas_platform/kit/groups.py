"""The queue of writers, for both drivers. Writers that arrive while a group runs become the next group."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import cast

from gpuaas_platform.kit import db

GROUP_MAX = 64
"""Most writers of a group: enough to share the time of a commit, few enough not to block the event loop for long."""


class GroupCommit:
    """Commits several write transactions together, as one group. The driver of each database implements how a group
    runs."""

    def __init__(self, notify: Callable[[str], None]) -> None:
        self.on_group: db.OnGroup = lambda *_: None
        self._notify = notify
        self._loop = asyncio.get_running_loop()
        self._waiting: list[db.Job] = []
        self._has_work = asyncio.Event()
        self._is_last = False
        self._writer = asyncio.create_task(self._write_groups(), name="writer")

    async def write(self, use_case: db.UseCase[db.Result], *, keep: bool = True) -> db.Result:
        job = db.Job(use_case, keep, self._loop.create_future())
        self._waiting.append(job)
        self._has_work.set()
        return cast("db.Result", await job.answer)

    async def _run_group(self, jobs: Sequence[db.Job]) -> None:
        """Run each job under its own savepoint and commit them together."""
        raise NotImplementedError

    async def _finish_writing(self) -> None:
        """Run the writers that are still in the queue, then stop."""
        self._is_last = True
        self._has_work.set()
        await self._writer

    async def _write_groups(self) -> None:
        while not self._is_last:
            await self._has_work.wait()
            self._has_work.clear()
            while self._waiting:
                jobs, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                await self._write_group(jobs)

    async def _write_group(self, jobs: Sequence[db.Job]) -> None:
        started_s, failure = time.perf_counter(), None
        try:
            await self._run_group(jobs)
        except Exception as error:  # noqa: BLE001 - every writer of the group gets it; the queue continues
            failure = error
        self.on_group(len(jobs), time.perf_counter() - started_s)
        db.finish(jobs, self._notify, failure)
