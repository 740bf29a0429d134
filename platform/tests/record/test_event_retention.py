"""Which events are deleted, and that a reader who misses some gets an error."""

import dataclasses

import pytest
from gpuaas_contract import errors, events, identity
from gpuaas_contract.event_types import EntitlementChanged
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import rules, store
from gpuaas_platform.record import service as record
from platform_world import World, forget_old_events

DAY_S = 86_400


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, session_ttl_s=30 * DAY_S)


async def test_events_older_than_the_retention_are_deleted_and_a_cursor_among_them_is_refused(world: World) -> None:
    old = await emit(world, world.project_id, 1200)
    world.clock.forward(5 * DAY_S)
    kept = await emit(world, world.project_id, 3)
    world.clock.forward(3 * DAY_S)
    await forget_old_events(world.site)
    with pytest.raises(errors.CursorExpired) as expired:
        await world.call(events.EVENT_LIST, query={"after": old[-2]})
    assert expired.value.details == {"oldest": old[-1] + 1, "newest": kept[-1]}
    for after in (0, expired.value.details["oldest"] - 1, old[-1]):
        page = await world.call(events.EVENT_LIST, query={"after": after})
        assert [event.cursor for event in page.items] == kept


async def test_a_cursor_stays_valid_in_a_project_without_new_events(world: World) -> None:
    quiet = await emit(world, world.project_id, 2)
    world.clock.forward(8 * DAY_S)
    await emit(world, await another_project(world), 2)
    await forget_old_events(world.site)
    page = await world.call(events.EVENT_LIST, query={"after": quiet[-1]})
    assert (page.items, page.cursor) == ([], quiet[-1])
    with pytest.raises(errors.CursorExpired):
        await world.call(events.EVENT_LIST, query={"after": quiet[0]})


async def test_a_cursor_of_another_project_is_accepted_when_nothing_was_deleted_here(world: World) -> None:
    await emit(world, world.project_id, 1)
    elsewhere = await emit(world, await another_project(world), 2)
    assert (await world.call(events.EVENT_LIST, query={"after": elsewhere[-1]})).items == []


async def test_a_cursor_from_another_record_is_refused(world: World) -> None:
    """After a restore from a backup: a reader that waits for its cursor would skip every event before it."""
    newest = (await emit(world, world.project_id, 1))[-1]
    with pytest.raises(errors.CursorExpired, match="another record"):
        await world.call(events.EVENT_LIST, query={"after": newest + 1})


async def test_cursors_are_not_used_again_when_every_event_was_deleted(world: World) -> None:
    old = await emit(world, world.project_id, 2)
    world.clock.forward(8 * DAY_S)
    await forget_old_events(world.site)
    assert await store.newest_cursor(world.site.database.reader, world.project_id) == old[-1]
    assert (await emit(world, world.project_id, 1))[0] > old[-1]


async def test_a_sweep_deletes_in_small_batches(world: World) -> None:
    await emit(world, world.project_id, 1200)
    world.clock.forward(8 * DAY_S)
    written = CountedWrites(world.site)
    await forget_old_events(written.site)
    assert written.count == 3


def test_zero_asks_for_all_events_that_are_kept() -> None:
    assert [after for after in range(8) if rules.is_forgotten(after, 5)] == [1, 2, 3, 4]


class CountedWrites:
    """A site that counts its transactions."""

    def __init__(self, site: Site) -> None:
        self.site, self.count = site, 0
        site.database.on_group = self._count

    def _count(self, *_: object) -> None:
        self.count += 1


async def another_project(world: World) -> str:
    org = (await world.call(identity.ORG_LIST)).items[0]
    made = await world.call(identity.PROJECT_CREATE, {"name": "another"}, org_id=org.org_id)
    return str(made.project_id)


async def emit(world: World, project_id: str, count: int) -> list[int]:
    """Emit `count` events and return their cursors."""

    async def use_case(tx: db.Tx) -> list[int]:
        payload = EntitlementChanged(app_slug="toy", enabled=True)
        origin = system_origin(world.clock())
        for _ in range(count):
            await record.emit(tx, origin, "catalog.entitlement.changed", payload, Owner("org_1", project_id))
        rows = await tx.all("SELECT cursor FROM events ORDER BY cursor DESC LIMIT $1", count)
        return sorted(row[0] for row in rows)

    return await world.site.database.write(use_case)
