"""What nobody asks for any more is forgotten: controllers that are gone, and failed joins no breaker counts."""

import dataclasses

import msgspec
import old_store
import pytest
from gpuaas_contract import runtime
from gpuaas_contract.catalog import BREAKER_WINDOW_S_MAX
from gpuaas_platform import server
from gpuaas_platform.instances import retention, store
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, World

DAY_S = 86_400


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, session_ttl_s=30 * DAY_S, service_account_token_ttl_s=30 * DAY_S)


async def claim(world: World, token: str, holder: str) -> None:
    body = runtime.ClaimOperation(app_slug="toy", holder=holder, claim_id=holder, lease_s=15)
    await world.call(runtime.CLAIM, body, token=token)


async def holders(world: World) -> list[str]:
    return [found.holder for found in (await world.call(runtime.CONTROLLER_LIST)).items]


async def fail_joins(world: World, count: int) -> None:
    """Of a role of one instance, now."""
    failed_at = clock.micros(world.clock())

    async def use_case(tx: db.Tx) -> None:
        for number in range(count):
            await tx.run(
                "INSERT INTO failed_joins (instance_id, component_key, failed_at, member_id) VALUES ($1, $2, $3, $4)",
                "inst_1",
                "hand",
                failed_at,
                f"mem_{number}",
            )

    await world.site.database.write(use_case)


async def failed_joins(world: World) -> int:
    return len(await store.failed_joins(world.site.database.reader, "inst_1", "hand", clock.EPOCH))


async def test_a_controller_nobody_hears_of_any_more_is_listed_for_a_while_and_then_forgotten(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    for holder in ("gone", "there"):
        await claim(world, token, holder)
    world.clock.forward(world.site.settings.controllers_kept_s - 1)
    await claim(world, token, "there")
    await retention.sweep(world.site)
    assert await holders(world) == ["gone", "there"]
    world.clock.forward(2)
    await retention.sweep(world.site)
    assert await holders(world) == ["there"]


async def test_a_failed_join_is_forgotten_when_no_breaker_can_count_it(world: World) -> None:
    await fail_joins(world, 2)
    world.clock.forward(BREAKER_WINDOW_S_MAX - 1)
    await fail_joins(world, 1)
    await retention.sweep(world.site)
    assert await failed_joins(world) == 3
    world.clock.forward(2)
    await retention.sweep(world.site)
    assert await failed_joins(world) == 1


async def test_one_pass_forgets_so_much_and_the_next_goes_on(world: World) -> None:
    await fail_joins(world, retention.BATCH + 1)
    world.clock.forward(BREAKER_WINDOW_S_MAX + 1)
    await retention.sweep(world.site)
    assert await failed_joins(world) == 1
    await retention.sweep(world.site)
    assert await failed_joins(world) == 0


async def test_controllers_of_an_older_release_keep_the_moment_they_were_heard(
    settings: Settings, database_url: str
) -> None:
    now = FakeClock()
    now.forward(0.5)
    heard = runtime.Controller(
        controller_id="proj_1/toy/one",
        project_id="proj_1",
        app_slug="toy",
        holder="one",
        actor_id="sa_1",
        version="1",
        last_seen_at=now(),
    )
    document = msgspec.json.encode(heard).decode()
    settings.data_dir.mkdir()
    row = f"INSERT INTO controllers VALUES ('{heard.controller_id}', '{heard.project_id}', '{document}')"
    await old_store.schema_before(19, settings.data_dir / "gpuaas.sqlite", database_url, row)
    async with server.open_site(settings, now) as site:
        await retention.sweep(site)
        assert await store.CONTROLLERS.get(site.database.reader, heard.controller_id) == heard
        now.forward(settings.controllers_kept_s + 1)
        await retention.sweep(site)
        assert await store.CONTROLLERS.get(site.database.reader, heard.controller_id) is None
