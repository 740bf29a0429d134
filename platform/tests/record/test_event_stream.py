"""Event streams: what a stream sends, how it resumes, who may see it and for how long."""

import asyncio
import contextlib
import dataclasses
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest
import uvicorn
from event_streams import EventStream
from gpuaas_contract import errors, event_types, events, identity, policy
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform import server
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.edge import http, streams
from gpuaas_platform.kit import db, tail
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import follow as following
from gpuaas_platform.record import service as record
from gpuaas_platform.record import watch
from platform_world import World
from server_process import until


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Settings with the intervals of a stream ten times as short."""
    return dataclasses.replace(settings, stream_silence_s_max=1.5, stream_recheck_s=0.3, streams_per_caller_max=30)


@pytest.fixture
async def url(world: World) -> AsyncIterator[str]:
    """The same platform on a socket of its own."""
    listening = socket.create_server(("127.0.0.1", 0))
    application = http.application(world.site, server.DOMAINS)
    config = uvicorn.Config(application, log_config=None, lifespan="off", timeout_graceful_shutdown=2)
    serving = server._Server(config)
    task = asyncio.create_task(serving.serve([listening]))
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    world.site.hub.close()
    serving.should_exit = True
    await task


Open = Callable[..., Awaitable[EventStream]]


@pytest.fixture
async def stream_of(world: World, url: str) -> AsyncIterator[Open]:
    """Open a stream of the world's project; it is closed at the end."""
    streams_open: list[EventStream] = []

    async def open_stream(**options: Any) -> EventStream:
        token = options.pop("token", world.token)
        streams_open.append(await EventStream.open(url, world.project_id, token, **options))
        return streams_open[-1]

    yield open_stream
    for stream in streams_open:
        stream.close()


async def test_a_stream_sends_the_same_events_as_the_long_poll(world: World, stream_of: Open) -> None:
    await emit(world.site, world.project_id, 3)
    stream = await stream_of()
    assert (stream.status, stream.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    await emit(world.site, world.project_id, 2)
    blocks = [await stream.next_event() for _ in range(5)]
    listed = (await world.call(events.EVENT_LIST)).items
    assert [msgspec.json.decode(block.data, type=events.Event) for block in blocks if block] == listed
    assert [(block.id, block.event) for block in blocks if block] == [(str(e.cursor), e.type) for e in listed]


async def test_the_last_event_id_takes_precedence_over_the_cursor_of_the_address(world: World, stream_of: Open) -> None:
    await emit(world.site, world.project_id, 4)
    cursors = [event.cursor for event in (await world.call(events.EVENT_LIST)).items]
    stream = await stream_of(after=0, last_event_id=str(cursors[2]))
    event = await stream.next_event()
    assert event is not None
    assert int(event.id) == cursors[3]


async def test_a_stream_without_events_sends_bookmarks_to_resume_from(world: World, stream_of: Open) -> None:
    await emit(world.site, world.project_id, 2)
    newest = (await world.call(events.EVENT_LIST)).cursor
    stream = await stream_of(after=newest)
    first, second = await stream.next(), await stream.next()
    assert first == second
    assert first is not None
    assert (first.event, first.id, first.data) == ("bookmark", str(newest), "{}")


@pytest.mark.parametrize("level", ["org", "platform"])
async def test_a_stream_above_projects_resumes_and_sends_bookmarks_too(
    world: World, stream_of: Open, level: str
) -> None:
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    above: dict[str, tuple[Endpoint[Any, Any], str]] = {
        "org": (policy.ORG_SET, events.ORG_EVENT_STREAM.path.format(org_id=org_id)),
        "platform": (policy.GLOBAL_SET, events.PLATFORM_EVENT_STREAM.path),
    }
    change, path = above[level]
    for number in range(2):
        await world.call(change, {"instances_max": number}, org_id=org_id)
    first = await (await stream_of(path=path)).next_event()
    assert first is not None
    resumed = await stream_of(path=path, last_event_id=first.id)
    second, bookmark = await resumed.next(), await resumed.next()
    assert second is not None
    assert bookmark is not None
    assert (second.event, msgspec.json.decode(second.data)["payload"]["revision"]) == ("policy.overlay.changed", 2)
    assert (bookmark.event, bookmark.id) == ("bookmark", second.id)


async def test_a_filter_shows_its_own_and_its_bookmark_moves_past_the_rest(world: World, stream_of: Open) -> None:
    stream = await stream_of(query="&app_instance_id=inst_b")
    await emit(world.site, world.project_id, 2, instance_id="inst_a")
    await emit(world.site, world.project_id, 1, instance_id="inst_b")
    await emit(world.site, world.project_id, 2, instance_id="inst_a")
    listed = (await world.call(events.EVENT_LIST)).items
    block = await stream.next_event()
    assert block is not None
    assert int(block.id) == listed[2].cursor
    while int(block.id) < listed[4].cursor:
        block = await stream.next()
        assert block is not None
        assert block.event == "bookmark"
    assert int(block.id) == listed[4].cursor


async def test_a_filter_finds_its_own_among_what_is_stored(world: World, stream_of: Open) -> None:
    await emit(world.site, world.project_id, 2, correlation_id="other")
    await emit(world.site, world.project_id, 2, correlation_id="mine")
    stream = await stream_of(query="&correlation_id=mine")
    blocks = [await stream.next_event() for _ in range(2)]
    assert [msgspec.json.decode(block.data)["correlation_id"] for block in blocks if block] == ["mine", "mine"]


async def test_a_refusal_comes_before_the_first_byte_and_is_a_problem_document(world: World, stream_of: Open) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org.org_id)
    stranger = await world.service_account("robot", sibling.project_id)
    refused = [
        await stream_of(token="", x_correlation_id="ticket-1"),
        await stream_of(token=stranger, x_correlation_id="ticket-1"),
        await stream_of(last_event_id="x", x_correlation_id="ticket-1"),
        await stream_of(after=10**6, x_correlation_id="ticket-1"),
    ]
    for stream, status in zip(refused, (401, 404, 400, 410), strict=True):
        problem = msgspec.json.decode(await stream.body(), type=errors.Problem)
        assert (stream.status, problem.status) == (status, status)
        assert stream.headers["x-correlation-id"] == problem.correlation_id == "ticket-1"


async def test_a_head_of_a_stream_ends_at_once(world: World) -> None:
    path = events.EVENT_STREAM.path.format(project_id=world.project_id)
    answer = await world.http.head(path, headers={"Authorization": f"Bearer {world.token}"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


async def test_a_caller_with_too_many_streams_is_refused_until_one_ends(world: World, stream_of: Open) -> None:
    robot = await world.service_account()
    held = [await stream_of() for _ in range(world.site.settings.streams_per_caller_max)]
    refused = await stream_of()
    problem = msgspec.json.decode(await refused.body(), type=errors.Problem)
    assert (problem.status, problem.code) == (429, "too_many_streams")
    assert (await stream_of(token=robot)).status == 200, "other callers are not affected"
    held[0].close()
    while (await stream_of()).status != 200:
        pass  # the server notices the closed connection a little later


async def test_a_stream_ends_when_its_token_expires(world: World, stream_of: Open) -> None:
    stream = await stream_of()
    world.clock.forward(world.site.settings.session_ttl_s + 1)
    assert await stream.next_event() is None
    assert stream.ended_cleanly


async def test_a_stream_ends_when_its_service_account_is_gone(world: World, stream_of: Open) -> None:
    stream = await stream_of(token=await world.service_account("robot"))
    await run(world.site, "UPDATE service_accounts SET document = replace(document, '\"active\"', '\"disabled\"')")
    assert await stream.next_event() is None


async def test_a_stream_ends_when_the_role_is_gone(world: World, stream_of: Open) -> None:
    stream = await stream_of()
    await run(world.site, "DELETE FROM bindings")
    assert await stream.next_event() is None


async def test_a_long_poll_is_refused_when_its_token_is_deleted_while_it_waits(world: World) -> None:
    token = await world.service_account("robot")
    waiting = asyncio.create_task(world.send(events.EVENT_LIST, token=token, query={"wait_s": 20}))
    await until(lambda: world.site.hub.waiting == 1)
    await asyncio.sleep(world.site.settings.stream_recheck_s * 2)  # longer than a caller is trusted without a check
    await run(world.site, "DELETE FROM tokens")
    await emit(world.site, world.project_id, 1)
    assert (await waiting).status_code == 401


async def test_streams_end_cleanly_when_the_server_stops(world: World, stream_of: Open) -> None:
    streams_open = [await stream_of() for _ in range(5)]
    await emit(world.site, world.project_id, 1)
    assert [event.event for stream in streams_open if (event := await stream.next_event())] == [KIND] * 5
    world.site.hub.close()
    assert [await stream.next_event() for stream in streams_open] == [None] * 5
    assert all(stream.ended_cleanly for stream in streams_open)


async def test_a_reader_slower_than_the_ring_is_long_misses_nothing(world: World) -> None:
    slow, quick = open_watch(world.site, world.project_id), open_watch(world.site, world.project_id)
    with contextlib.closing(slow), contextlib.closing(quick):
        ids = blocks(await quick.next()) if await emit(world.site, world.project_id, 1) else []
        for _ in range(6):
            await emit(world.site, world.project_id, 300)
            while len(ids) % 300 != 1:
                ids += blocks(await quick.next())
            ids += blocks(await quick.next())
        seen: list[int] = []
        while len(seen) < 1801:
            seen += blocks(await slow.next())
    listed = await world.site.database.reader.all("SELECT cursor FROM events ORDER BY cursor")
    assert seen == [row[0] for row in listed]


async def test_watchers_of_a_project_share_one_reader(world: World) -> None:
    counted = CountedRecord(world.site.database.reader, world.project_id, following.EVERYTHING)
    tails = tail.Tails(world.site.hub, tick_s=3600)  # nothing is read by time
    watches = [watch.Watch(tails, counted, 0, 60.0) for _ in range(100)]
    await emit(world.site, world.project_id, 1)
    await asyncio.gather(*(each.next() for each in watches))
    await until(lambda: counted.reads > 0)
    before = counted.reads
    waiting = asyncio.gather(*(each.next() for each in watches))
    await emit(world.site, world.project_id, 1)
    assert len({id(data) for data in await waiting}) == 1, "one frame, encoded once"
    assert counted.reads - before <= 2
    for each in watches:
        each.close()


async def test_one_check_serves_every_stream_of_a_token() -> None:
    checked, guards = 0, streams.Guards(0.01)

    async def check() -> None:
        nonlocal checked
        if all(source.ended.is_set() for source in sources):
            return  # every stream is ended; a later check does not count
        checked += 1
        if checked == 3:
            raise errors.TokenInvalid

    sources = [Idle() for _ in range(1000)]
    joined = [guards.join("usr_1", ("Bearer x", b"/path", "proj_1"), check, source) for source in sources]
    await asyncio.gather(*(source.ended.wait() for source in sources))
    assert checked == 3
    for guard, source in zip(joined, sources, strict=True):
        guards.leave(guard, source)


async def test_a_stream_ends_when_its_permission_cannot_be_checked() -> None:
    async def check() -> None:
        raise db.Unavailable("no answer")

    guards, source = streams.Guards(0.01), Idle()
    guard = guards.join("usr_1", ("Bearer x", b"/path", "proj_1"), check, source)
    await source.ended.wait()
    guards.leave(guard, source)


async def test_a_check_that_takes_too_long_ends_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    async def check() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(streams, "CHECK_S_MAX", 0.05)
    guards, source = streams.Guards(0.01), Idle()
    guard = guards.join("usr_1", ("Bearer x", b"/path", "proj_1"), check, source)
    await source.ended.wait()
    guards.leave(guard, source)


async def test_a_filtered_long_poll_moves_on_past_what_it_left_out(world: World) -> None:
    await emit(world.site, world.project_id, 3, instance_id="inst_a")
    newest = (await world.call(events.EVENT_LIST)).cursor
    page = await world.call(events.EVENT_LIST, query={"app_instance_id": "inst_b"})
    assert (page.items, page.cursor) == ([], newest)


async def test_every_event_of_a_deployment_has_the_form_its_type_promises(world: World) -> None:
    token = await world.service_account()
    await world.entitled_app()
    await world.running_instance(token)
    listed = (await world.call(events.EVENT_LIST)).items
    assert len({event.type for event in listed}) >= 6
    for event in listed:
        payload = msgspec.convert(event.payload, event_types.TYPES[event.type].payload)
        assert msgspec.to_builtins(payload) == event.payload


async def test_an_event_with_the_payload_of_another_is_refused(site: Site) -> None:
    async def use_case(tx: db.Tx) -> None:
        await record.emit(tx, system_origin(site.clock()), "apps.member.changed", PAYLOAD, Owner("", "p"))

    with pytest.raises(TypeError, match="carries MemberChanged"):
        await site.database.write(use_case)


async def test_an_event_that_comes_while_a_watcher_reads_is_sent_without_waiting_for_a_tick(world: World) -> None:
    site = world.site
    tails = tail.Tails(site.hub, tick_s=3600)
    record = RecordWithNews(site, world.project_id)
    watcher = watch.Watch(tails, record, 0, 3600.0)
    record.shared = tails.join(record.topic, record)
    async with asyncio.timeout(60):  # without the wake-up it would wait for the tick
        assert blocks(await watcher.next()) == [record.shared.newest]
    await tails.close()


KIND = "catalog.entitlement.changed"
PAYLOAD = event_types.EntitlementChanged(app_slug="toy", enabled=True)


class CountedRecord(watch.Record):
    reads = 0

    async def after(self, cursor: int, limit: int) -> list[tail.Frame]:
        self.reads += 1
        return await super().after(cursor, limit)


class RecordWithNews(watch.Record):
    """After a watcher's first read an event is added, and the shared tail has it before the read returns."""

    shared: tail.Tail | None = None

    def __init__(self, site: Site, project_id: str) -> None:
        super().__init__(site.database.reader, project_id, following.EVERYTHING)
        self._site, self._project_id, self._is_added = site, project_id, False

    async def wanted_after(self, cursor: int) -> tuple[list[tail.Frame], int]:
        read = await super().wanted_after(cursor)
        if not self._is_added:
            self._is_added = True
            await emit(self._site, self._project_id, 1)
            await until(lambda: self.shared is not None and self.shared.newest > cursor)
        return read


class Idle:
    """A stream that sends nothing until it is ended."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def next(self) -> bytes:
        await self.ended.wait()
        return b""

    def end(self) -> None:
        self.ended.set()

    def close(self) -> None:
        return


def open_watch(site: Site, project_id: str) -> watch.Watch:
    return watch.Watch(site.tails, watch.Record(site.database.reader, project_id, following.EVERYTHING), 0, 60.0)


def blocks(data: bytes) -> list[int]:
    return [int(line.removeprefix("id: ")) for line in data.decode().splitlines() if line.startswith("id: ")]


async def emit(site: Site, project_id: str, count: int, *, instance_id: str = "", correlation_id: str = "") -> int:
    async def use_case(tx: db.Tx) -> None:
        for _ in range(count):
            origin = system_origin(site.clock(), correlation_id)
            await record.emit(tx, origin, KIND, PAYLOAD, Owner("org_1", project_id), app_instance_id=instance_id)

    await site.database.write(use_case)
    return count


async def run(site: Site, sql: str) -> None:
    async def use_case(tx: db.Tx) -> None:
        await tx.run(sql)

    await site.database.write(use_case)
