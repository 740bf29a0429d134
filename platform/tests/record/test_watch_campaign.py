"""Fifty watchers each disconnect many times while events are written and the server is killed. Every watcher must
receive the whole record in order, with no event twice and none missing."""

import asyncio
import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import campaigns
import httpx
from event_streams import EventStream
from gpuaas_contract import events
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from server_process import Cloud, ServerProcess, until

STREAMS, POLLS, SDK_CLIENTS = 50, 8, 2
WRITERS = 4
BREAK_AFTER_MAX = 5
"""Few enough that every watcher breaks as often as it should before the writers are done."""
DEADLINE_S = 300
"""Bounds a hang; the campaign takes as long as the host needs."""


@dataclass(frozen=True)
class Size:
    breaks: int
    """Of each stream."""
    events: int
    kill_after: int


SIZE = campaigns.size(
    short=Size(breaks=50, events=250, kill_after=110),
    whole=Size(breaks=200, events=800, kill_after=350),
)


class Watcher:
    """Keeps every cursor it received, and its place; breaks its connection at random."""

    def __init__(self, cloud: Cloud, url: str, token: str, seed: int, breaks: int = 0) -> None:
        self._cloud, self._url, self._token = cloud, url, token
        self.breaks_left, self._random = breaks, random.Random(seed)
        self.seen: list[int] = []
        self.place = 0

    async def follow(self, until: asyncio.Event) -> None:
        while not until.is_set():
            try:
                await self._connection(until)
            except (OSError, httpx.TransportError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.05)  # the server is away

    async def _connection(self, until: asyncio.Event) -> None:
        raise NotImplementedError


class Streamed(Watcher):
    async def _connection(self, until: asyncio.Event) -> None:
        place = str(self.place) if self.place else ""
        stream = await EventStream.open(self._url, self._cloud.project_id, self._token, last_event_id=place)
        assert stream.status == 200, await stream.body()
        ends_after = self._random.randint(1, BREAK_AFTER_MAX) if self.breaks_left else None
        try:
            await self._listen(stream, ends_after, until)
        finally:
            stream.close()

    async def _listen(self, stream: EventStream, ends_after: int | None, until: asyncio.Event) -> None:
        """Without `ends_after`, listen to the end."""
        slow = self._random.random() < 0.2
        for _ in itertools.count() if ends_after is None else range(ends_after):
            block = await stream.next()
            if block is None or until.is_set():
                return
            self.place = int(block.id)
            if block.event != "bookmark":
                self.seen.append(self.place)
            if slow:
                await asyncio.sleep(self._random.random() / 200)
        self.breaks_left = max(0, self.breaks_left - 1)


class Polled(Watcher):
    async def _connection(self, until: asyncio.Event) -> None:
        wait_s = self._random.random()
        query = {"after": self.place, "wait_s": wait_s, "limit": self._random.randint(1, 200)}
        page = await self._cloud.call(events.EVENT_LIST, query=query, token=self._token)
        self.seen += [event.cursor for event in page.items]
        self.place = page.cursor
        await asyncio.sleep(self._random.random() / 2)


class ByTheSdk(Watcher):
    """One iterator for the whole test: the SDK reconnects by itself after the kill."""

    async def _connection(self, until: asyncio.Event) -> None:
        async with Client(self._url, BearerToken(self._token)) as client:
            async for event in client.events(self._cloud.project_id):
                self.seen.append(event.cursor)
                if until.is_set():
                    return


async def test_every_watcher_sees_the_whole_record_once_and_in_order(tmp_path: Path, database_url: str) -> None:
    platform = ServerProcess(tmp_path / "data", database_url, options=["--rate-limit-per-s", "0"])
    password = await asyncio.to_thread(platform.admin_password)
    await asyncio.to_thread(platform.start)
    try:
        async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(base_url=platform.url, timeout=30) as client:
            cloud = Cloud(client)
            await cloud.sign_in(password)
            await cloud.make_project()
            await _campaign(platform, cloud, SIZE)
    finally:
        platform.kill()


async def test_a_server_that_is_stopped_ends_its_streams_and_exits(tmp_path: Path, database_url: str) -> None:
    platform = ServerProcess(tmp_path / "data", database_url)
    password = await asyncio.to_thread(platform.admin_password)
    await asyncio.to_thread(platform.start)
    async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(base_url=platform.url, timeout=30) as client:
        cloud = Cloud(client)
        await cloud.sign_in(password)
        await cloud.make_project()
        streams = [await EventStream.open(platform.url, cloud.project_id, cloud.token) for _ in range(20)]
        assert await asyncio.to_thread(platform.stop) == 0
        for stream in streams:
            while await stream.next_event() is not None:
                pass  # events from before the stop
        assert all(stream.ended_cleanly for stream in streams)
        for stream in streams:
            stream.close()


async def _campaign(platform: ServerProcess, cloud: Cloud, size: Size) -> None:
    tokens = [await cloud.service_account(f"watcher-{number}") for number in range(5)]
    watchers: list[Watcher] = [
        Streamed(cloud, platform.url, tokens[seed % 5], seed, size.breaks) for seed in range(STREAMS)
    ]
    watchers += [Polled(cloud, platform.url, tokens[1 + seed % 3], seed) for seed in range(POLLS)]
    watchers += [ByTheSdk(cloud, platform.url, tokens[4], seed) for seed in range(SDK_CLIENTS)]
    done = asyncio.Event()
    following = [asyncio.create_task(watcher.follow(done)) for watcher in watchers]
    writing = [asyncio.create_task(_write(cloud, size.events)) for _ in range(WRITERS)]
    await until(lambda: len(cloud.answered) >= size.kill_after)
    platform.kill()
    await asyncio.to_thread(platform.start)
    await asyncio.gather(*writing)
    recorded = await cloud.recorded()
    await until(lambda: all(len(watcher.seen) >= len(recorded) for watcher in watchers))
    done.set()
    await cloud.make_event()  # a watcher that still waits wakes up and stops
    await asyncio.gather(*following)
    assert {event.correlation_id for event in recorded} >= set(cloud.answered[:-1])
    for watcher in watchers:
        assert watcher.seen[: len(recorded)] == [event.cursor for event in recorded]
    assert sum(watcher.breaks_left for watcher in watchers) == 0


async def _write(cloud: Cloud, count: int) -> None:
    while len(cloud.answered) < count:
        try:
            await cloud.make_event()
        except httpx.TransportError:
            await asyncio.sleep(0.05)  # the server is down; the record shows whether it stored the last event
