"""Two platform processes on one PostgreSQL are one platform: one order of events, wake-ups, replays and revocations."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import httpx
import postgres_server
import pytest
from event_streams import EventStream
from gpuaas_contract import events, identity
from gpuaas_platform import server
from gpuaas_platform.kit import db, hub, ids, postgres
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import follow as following
from server_process import Cloud, ServerProcess, until

DEADLINE_S = 60
WOKEN_S_MAX = hub.WAIT_MAX_S - 5
"""A poll that is not woken looks again only at its end."""
WRITTEN_BY_EACH = 600


@pytest.fixture
def database_url(postgres_folder: Path) -> str:
    """One engine only: SQLite is for one process."""
    name = ids.new("db")
    postgres_server.create_database(postgres_folder, name)
    return f"postgresql://postgres@/{name}?host={postgres_folder}"


class Pair:
    """Two servers, and an admin who is signed in on both with one token."""

    def __init__(self, first: ServerProcess, second: ServerProcess, password: str) -> None:
        self.first, self.second, self._password = first, second, password

    @contextlib.asynccontextmanager
    async def clouds(self) -> AsyncIterator[tuple[Cloud, Cloud]]:
        limits = httpx.Timeout(60)
        async with (
            httpx.AsyncClient(base_url=self.first.url, timeout=limits) as on_first,
            httpx.AsyncClient(base_url=self.second.url, timeout=limits) as on_second,
        ):
            first = Cloud(on_first)
            await first.sign_in(self._password)
            await first.make_project()
            yield first, Cloud(on_second, first.token, first.project_id)


@pytest.fixture(scope="module")
def pair(postgres_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    name, data = ids.new("db"), tmp_path_factory.mktemp("two") / "data"
    postgres_server.create_database(postgres_folder, name)
    url = f"postgresql://postgres@/{name}?host={postgres_folder}"
    first, second = ServerProcess(data, url), ServerProcess(data, url)
    password = first.admin_password()
    with first, second:
        yield Pair(first, second, password)


async def test_a_long_poll_on_one_process_is_woken_by_a_write_through_the_other(pair: Pair) -> None:
    async with pair.clouds() as (first, second):
        for _ in range(5):
            newest = (await first.call(events.EVENT_LIST)).cursor
            waiting = asyncio.create_task(_entitlements_after(first, newest))
            made = await second.make_event()
            async with asyncio.timeout(WOKEN_S_MAX):
                assert [event.correlation_id for event in await waiting] == [made]


async def _entitlements_after(cloud: Cloud, cursor: int) -> list[events.Event]:
    """The first changes of entitlements after the cursor. A new project also gets events by itself, a moment later."""
    changes: list[events.Event] = []
    while not changes:
        page = await cloud.call(events.EVENT_LIST, query={"after": cursor, "wait_s": 30})
        changes, cursor = [event for event in page.items if event.type == "catalog.entitlement.changed"], page.cursor
    return changes


async def test_a_stream_on_one_process_sends_the_writes_of_both_in_one_order(pair: Pair) -> None:
    async with asyncio.timeout(DEADLINE_S), pair.clouds() as (first, second):
        stream = await EventStream.open(pair.first.url, first.project_id, first.token)
        await asyncio.gather(*(cloud.make_event() for cloud in (first, second) for _ in range(20)))
        blocks = [await stream.next_event() for _ in range(40)]
        stream.close()
        recorded = [str(event.cursor) for event in await second.recorded()]
        assert [block.id for block in blocks if block] == recorded[:40]


async def test_a_repeat_through_the_other_process_gets_the_first_answer(pair: Pair) -> None:
    """One request per process at a time: a second one in the same process is refused while the first is running."""
    async with asyncio.timeout(DEADLINE_S), pair.clouds() as clouds:
        body, key = {"name": ids.new("twice")[-20:]}, ids.new("key")
        answers = [
            answer
            for _ in range(10)
            for answer in await asyncio.gather(*(cloud.send(identity.ORG_CREATE, body, key=key) for cloud in clouds))
        ]
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.content for answer in answers}) == 1


async def test_an_account_disabled_through_one_process_loses_its_sessions_on_the_other(pair: Pair) -> None:
    async with asyncio.timeout(DEADLINE_S), pair.clouds() as (first, second):
        token = await first.service_account("robot")
        stream = await EventStream.open(pair.first.url, first.project_id, token)
        account = (await second.call(identity.SERVICE_ACCOUNT_LIST)).items[0]
        await second.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=account.service_account_id)
        assert (await first.send(identity.ME, token=token)).status_code == 401
        while await stream.next_event() is not None:
            pass  # events from before the account was disabled
        stream.close()


_WRITER = """
import asyncio, sys
from pathlib import Path
from gpuaas_contract.event_types import EntitlementChanged
from gpuaas_platform import server
from gpuaas_platform.call import system_origin, Owner
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import service as record

PAYLOAD = EntitlementChanged(app_slug="toy", enabled=True)

async def main():
    async with server.open_site(Settings(data_dir=Path(sys.argv[1]), database_url=sys.argv[2])) as site:
        async def use_case(tx):
            origin = system_origin(site.clock())
            await record.emit(tx, origin, "catalog.entitlement.changed", PAYLOAD, Owner("o", "p"))
        for _ in range(int(sys.argv[3]) // 8):
            await asyncio.gather(*(site.database.write(use_case) for _ in range(8)))

asyncio.run(main())
"""


async def test_two_processes_writing_at_once_never_commit_behind_a_reader(settings: Settings) -> None:
    """A reader continues from the highest cursor it saw. It would never see a lower one that appears later."""
    async with asyncio.timeout(300), server.open_site(settings) as site:
        command = ["-c", _WRITER, str(settings.data_dir), settings.database_url, str(WRITTEN_BY_EACH)]
        writers = [await asyncio.create_subprocess_exec(sys.executable, *command) for _ in range(2)]
        running = asyncio.gather(*(writer.wait() for writer in writers))
        seen: list[int] = []
        while len(seen) < 2 * WRITTEN_BY_EACH:
            is_over, position = running.done(), seen[-1] if seen else 0
            page, _ = await following.after(site.database.reader, "p", position, 500)
            seen += [event.cursor for event in page]
            if is_over and not page:
                break
        assert await running == [0, 0]
        stored = await site.database.reader.all("SELECT cursor FROM events ORDER BY cursor")
        assert seen == [row[0] for row in stored]
        assert len(seen) == 2 * WRITTEN_BY_EACH


async def test_after_a_lost_connection_every_listener_looks_again_and_is_woken_as_before(settings: Settings) -> None:
    async def wake(tx: db.Tx) -> None:
        tx.wake("topic")

    async with asyncio.timeout(DEADLINE_S), server.open_site(settings) as here, server.open_site(settings) as there:
        with here.hub.listen("topic") as listener:
            await there.database.write(wake)
            assert await listener.wait(DEADLINE_S)
            await _break_listeners(settings.database_url)
            assert await listener.wait(DEADLINE_S)
            await there.database.write(wake)
            assert await listener.wait(DEADLINE_S)


async def test_a_process_receives_the_wakes_of_others_and_not_its_own(database_url: str) -> None:
    received: list[str] = []
    own = postgres.Wakes(database_url, received.append, lambda: received.append("everything"))
    other = postgres.Wakes(database_url, lambda _: None, lambda: None)
    await own.start()
    connection = await asyncpg.connect(database_url)
    async with asyncio.timeout(DEADLINE_S):
        await connection.execute(own.statements(["own"]))
        await connection.execute(other.statements(["theirs", "their's \\ too", "last"]))
        await until(lambda: "last" in received)
    assert received == ["theirs", "their's \\ too", "last"]
    await connection.close()
    await own.close()


def test_many_topics_go_in_few_messages_that_postgres_takes() -> None:
    topics = [f"events:proj_{number:026}" for number in range(1000)]
    messages = list(postgres.payloads("sender", topics))
    assert max(len(message.encode()) for message in messages) < 8000
    assert len(messages) < 10
    assert [topic for message in messages for topic in postgres._MESSAGE.decode(message).topics] == topics


def test_a_topic_that_does_not_fit_into_a_message_wakes_every_listener() -> None:
    (message,) = postgres.payloads("sender", ["é" * 8000])
    assert postgres._MESSAGE.decode(message).topics == []


async def _break_listeners(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(
        """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE query ILIKE 'LISTEN%' AND datname = current_database()"""
    )
    await connection.close()
