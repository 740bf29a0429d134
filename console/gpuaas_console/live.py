"""News for open pages. One task per session and project follows the project's events and wakes all open pages of it, so
that many pages cost one long poll per project. A page that is woken reads everything again: a lost wake-up costs only
delay."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from gpuaas_contract.errors import ApiError
from gpuaas_contract.events import EVENT_LIST, Event
from gpuaas_sdk.client import Client
from gpuaas_sdk.outcomes import NoAnswer

KEEP_ALIVE_S = 15.0
PAUSE_S = 0.25
"""Between two messages to a page. Changes in between are reported by the next message, so none is lost."""
RETRY_S = 2.0
CALL_S = 10.0

Concerns = Callable[[Event], bool]


class Wake:
    """What one open page waits for, in one or several projects."""

    def __init__(self, concerns: Concerns, followers: Sequence["Follower"]) -> None:
        self.concerns = concerns
        self.news = asyncio.Event()
        self._starting = set(followers)
        self._broken: set[Follower] = set()

    @property
    def broken(self) -> bool:
        """Whether the platform cannot be reached now for one of the projects, so that changes are not noticed."""
        return bool(self._broken)

    def follows(self, follower: "Follower", *, broken: bool) -> None:
        """Note whether a project is followed. The page is read again when all are: it may have missed changes."""
        self._starting.discard(follower)
        if broken:
            self._broken.add(follower)
        else:
            self._broken.discard(follower)
        if broken or not self._starting:
            self.news.set()


class Follower:
    """Follows the events of one project while at least one page is open."""

    def __init__(self, client: Client, project: str) -> None:
        self._client = client
        self._project = project
        self._wakes: set[Wake] = set()
        self._task: asyncio.Task[None] | None = None
        self._broken: bool | None = None
        """Whether the platform cannot be reached; None: not known yet."""
        self.is_closed = False
        """The session is over, and its streams end."""

    @contextlib.asynccontextmanager
    async def watch(self, wake: Wake) -> AsyncIterator[None]:
        self._wakes.add(wake)
        if self._broken is not None:  # else the page is woken as soon as it is known
            wake.follows(self, broken=self._broken)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._wakes.discard(wake)
            if not self._wakes:
                await self.stop()

    async def close(self) -> None:
        """End the streams of all pages, as their session is over."""
        self.is_closed = True
        for wake in self._wakes:
            wake.news.set()
        await self.stop()

    async def stop(self) -> None:
        task, self._task, self._broken = self._task, None, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except (ApiError, NoAnswer):
                self._wake_all(broken=True)
            await asyncio.sleep(RETRY_S)

    async def _follow(self) -> None:
        # With a filter that matches nothing, the cursor moves past all events.
        newest = await self._client.call(
            EVENT_LIST, query={"correlation_id": "-"}, project_id=self._project, timeout_s=CALL_S
        )
        self._wake_all(broken=False)  # events before the cursor may concern a page
        async for event in self._client.events(self._project, after=newest.cursor):
            for wake in self._wakes:
                if wake.concerns(event):
                    wake.news.set()

    def _wake_all(self, *, broken: bool) -> None:
        self._broken = broken
        for wake in self._wakes:
            wake.follows(self, broken=broken)


async def stream(followers: Sequence[Follower], concerns: Concerns) -> AsyncIterator[bytes]:
    """Yield server-sent events: `changed` when the page must be read again, `stale` when changes are not noticed."""
    wake = Wake(concerns, followers)
    async with contextlib.AsyncExitStack() as open_watches:
        for follower in followers:
            await open_watches.enter_async_context(follower.watch(wake))
        while True:
            has_news = await _has_news(wake)
            if any(follower.is_closed for follower in followers):
                return
            if not has_news:
                yield b": keep\n\n"
                continue
            wake.news.clear()  # before the page reads: a change after this wakes it again
            yield b"event: stale\ndata: 1\n\n" if wake.broken else b"event: changed\ndata: 1\n\n"
            await asyncio.sleep(PAUSE_S)


async def _has_news(wake: Wake) -> bool:
    """Wait for news, and return False if there are none for some time."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            await wake.news.wait()
    except TimeoutError:
        return False
    return True
