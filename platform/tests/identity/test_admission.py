"""The rights of a token are cached between calls, and every change of them counts from the next call on."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from gpuaas_contract import capacity, errors, identity
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.identity import admission, store
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, Person, World
from server_process import Cloud, ServerProcess

DEADLINE_S = 60


class CountedReader:
    """The reader of a site, which counts what is asked of it."""

    def __init__(self, reader: db.Reader) -> None:
        self._reader, self.count = reader, 0

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        self.count += 1
        return await self._reader.one(sql, *values)

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        self.count += 1
        return await self._reader.all(sql, *values)


@pytest.fixture
def reader(world: World, monkeypatch: pytest.MonkeyPatch) -> CountedReader:
    counted = CountedReader(world.site.database.reader)
    monkeypatch.setattr(world.site.database, "reader", counted)
    return counted


@pytest.fixture
def admissions(world: World, reader: CountedReader) -> admission.Admissions:
    return admission.Admissions(world.site.database)


async def test_on_the_embedded_store_an_admission_is_read_once_until_the_next_write(
    world: World, reader: CountedReader, admissions: admission.Admissions
) -> None:
    for _ in range(3):
        await admissions.find(world.token, world.clock(), project_id=world.project_id)
    assert reader.count == (3 if world.site.settings.database_url else 1)
    await world.call(identity.ORG_CREATE, {"name": "other"})
    reader.count = 0
    await admissions.find(world.token, world.clock(), project_id=world.project_id)
    assert reader.count == 1


async def test_each_target_is_decided_for_itself(world: World, admissions: admission.Admissions) -> None:
    robot = await world.service_account()
    own = await admissions.find(robot, world.clock(), project_id=world.project_id)
    nowhere = await admissions.find(robot, world.clock(), project_id="proj_absent")
    platform = await admissions.find(robot, world.clock())
    verdicts = [target.decide("apps.instance.read") for target in (own, nowhere, platform)]
    assert verdicts == ["allowed", "hidden", "hidden"]
    assert [target.target_exists for target in (own, nowhere, platform)] == [True, False, True]


async def test_a_token_that_was_kept_ends_on_time(world: World, admissions: admission.Admissions) -> None:
    last = world.site.settings.session_ttl_s - 1
    await admissions.find(world.token, world.clock())
    world.clock.forward(last)
    await admissions.find(world.token, world.clock())
    world.clock.forward(1)
    with pytest.raises(errors.TokenExpired):
        await admissions.find(world.token, world.clock())


Change = Callable[[db.Tx, Person], Awaitable[None]]


async def _end_sessions(tx: db.Tx, person: Person) -> None:
    await token_store.end_tokens_of(tx, person.user_id)


async def _disable(tx: db.Tx, person: Person) -> None:
    await store.set_user_state(tx, person.user_id, "disabled")


async def _take_roles(tx: db.Tx, person: Person) -> None:
    await tx.run("DELETE FROM bindings WHERE user_id = $1", person.user_id)


@pytest.mark.parametrize(("change", "status"), [(_end_sessions, 401), (_disable, 401), (_take_roles, 404)])
async def test_what_another_process_changes_counts_from_the_next_call(
    world: World, settings: Settings, change: Change, status: int
) -> None:
    person = await world.person("ada", "viewer", world.project_id)

    async def look() -> int:
        return (await world.send(capacity.ALLOCATION_LIST, token=person.token)).status_code

    async with server.open_site(settings, FakeClock()) as elsewhere:
        assert [await look(), await look()] == [200, 200]
        await elsewhere.database.write(lambda tx: change(tx, person))
        assert await look() == status


async def test_a_project_that_was_absent_is_found_once_it_is_there(
    world: World, admissions: admission.Admissions
) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    absent = identity.Project(project_id="proj_next", org_id=org.org_id, name="next", created_at=world.clock())
    assert not (await admissions.find(world.token, world.clock(), project_id="proj_next")).target_exists
    await world.site.database.write(lambda tx: store.PROJECTS.insert(tx, absent))
    assert (await admissions.find(world.token, world.clock(), project_id="proj_next")).project == absent


async def test_recovering_the_admin_ends_sessions_of_a_running_server(tmp_path: Path) -> None:
    """`gpuaas-platform admin` writes to the same file as the server and does not notify it."""
    process = ServerProcess(tmp_path / "data")
    password = process.admin_password()
    async with asyncio.timeout(DEADLINE_S), contextlib.AsyncExitStack() as stack:
        stack.enter_context(process)
        cloud = Cloud(await stack.enter_async_context(httpx.AsyncClient(base_url=process.url, timeout=DEADLINE_S)))
        await cloud.sign_in(password)
        assert [(await cloud.send(identity.ME)).status_code for _ in range(2)] == [200, 200]
        await asyncio.to_thread(process.admin_password)
        assert (await cloud.send(identity.ME)).status_code == 401


async def test_no_more_than_a_bounded_number_is_kept(
    site: Site, world: World, admissions: admission.Admissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_KEPT_MAX", 3)
    for number in range(10):
        await admissions.find(world.token, world.clock(), project_id=f"proj_{number}")
    assert len(admissions._kept) == (0 if site.settings.database_url else 3)
