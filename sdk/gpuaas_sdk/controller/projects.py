"""One controller process for several projects: a runner in each project that the account can see. `App.main` starts it
if no project is given.

The list of projects is read again at an interval. Each project has a runner of its own, so reports, logs, leases and
failures of one project do not reach another one. A project never has two runners: one that returns is entered again
when the handlers of its last runner have ended."""

import asyncio
from collections.abc import Callable

import structlog
from gpuaas_contract.errors import ApiError, CredentialsInvalid
from gpuaas_contract.identity import PROJECT_LIST
from gpuaas_contract.wire import PAGE_SIZE_MAX

from gpuaas_sdk.client import Client
from gpuaas_sdk.controller.runner import Runner
from gpuaas_sdk.outcomes import NoAnswer

log = structlog.get_logger()

LIST_EVERY_S = 10.0
"""How often the list of projects is read: the longest time until a project that accepts the account is served."""


class ProjectRunners:
    """Runs one runner for each project in which the account may work.

    runners = ProjectRunners(client, lambda project_id: app.runner(client, project_id, "hello@fleet"))
    await runners.run()"""

    def __init__(
        self, client: Client, make_runner: Callable[[str], Runner], *, list_every_s: float = LIST_EVERY_S
    ) -> None:
        self._client = client
        self._make_runner = make_runner
        self._list_every_s = list_every_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._runners: dict[str, Runner] = {}
        self._leaving: set[str] = set()
        self._missing: frozenset[str] = frozenset()

    @property
    def project_ids(self) -> frozenset[str]:
        """The projects that are served now."""
        return frozenset(self._tasks) - self._leaving

    async def run(self) -> None:
        """Serve all projects until cancelled."""
        try:
            while True:
                self._follow(await self._list())
                await asyncio.sleep(self._list_every_s)
        finally:
            # A runner that stops already is not cancelled again: its handlers clean up.
            for project_id in self.project_ids:
                self._tasks[project_id].cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _follow(self, listed: frozenset[str] | None) -> None:
        """Start a runner in each new project, and stop it in those that are gone. Without a list, keep all."""
        for project_id, task in list(self._tasks.items()):
            if task.done():
                self._end(project_id, task)
        if listed is None:
            return
        # One list can be short or old. Running work ends only if the next list agrees with it.
        missing = self.project_ids - listed
        for project_id in missing & self._missing:
            self._leave(project_id)
        self._missing = missing - self._leaving
        for project_id in listed - frozenset(self._tasks):
            self._enter(project_id)
        for project_id in listed & self._leaving:
            log.warning("project.waiting", project_id=project_id, reason="handlers of its last runner still clean up")

    def _enter(self, project_id: str) -> None:
        log.info("project.entered", project_id=project_id)
        task = asyncio.create_task(self._serve(project_id))
        task.add_done_callback(lambda done: _log_crash(project_id, done))
        self._tasks[project_id] = task

    def _leave(self, project_id: str) -> None:
        log.info("project.left", project_id=project_id)
        self._leaving.add(project_id)
        self._tasks[project_id].cancel()

    def _end(self, project_id: str, task: asyncio.Task[None]) -> None:
        """Forget a runner that has ended. While handlers of it still run, keep it among the leaving ones: a second
        runner could claim the same operation."""
        error = None if task.cancelled() else task.exception()
        if isinstance(error, CredentialsInvalid):
            raise error
        runner = self._runners.get(project_id)
        if runner is not None and runner.is_busy:
            self._leaving.add(project_id)
            return
        del self._tasks[project_id]
        self._runners.pop(project_id, None)
        self._leaving.discard(project_id)

    async def _serve(self, project_id: str) -> None:
        with structlog.contextvars.bound_contextvars(project_id=project_id):
            self._runners[project_id] = self._make_runner(project_id)
            await self._runners[project_id].run()

    async def _list(self) -> frozenset[str] | None:
        """Return the ids of the projects that the account can see; None if they could not be read."""
        try:
            pages = self._client.pages(PROJECT_LIST, query={"page_size": PAGE_SIZE_MAX})
            return frozenset([project.project_id async for project in pages])
        except CredentialsInvalid:
            raise
        except (ApiError, NoAnswer) as error:
            log.warning("projects.list_failed", error=error.message, fix=error.fix, retry_in_s=self._list_every_s)
            return None


def _log_crash(project_id: str, task: asyncio.Task[None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, CredentialsInvalid):
        log.error("controller.task_crashed", project_id=project_id, exc_info=error)
