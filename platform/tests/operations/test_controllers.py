"""Presence of controllers: listed for a while after they were last seen, then forgotten."""

import dataclasses

import msgspec
import old_store
import pytest
from gpuaas_contract import runtime
from gpuaas_platform import server
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.operations import controllers
from platform_world import FakeClock, World

DAY_S = 86_400


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, session_ttl_s=30 * DAY_S, service_account_token_ttl_s=30 * DAY_S)


async def claim(world: World, token: str, holder: str) -> None:
    body = runtime.ClaimOperation(app_slug="toy", holder=holder, claim_id=holder, lease_s=15)
    await world.call(runtime.CLAIM, body, token=token)


async def holders(world: World) -> list[str]:
    return [controller.holder for controller in (await world.call(runtime.CONTROLLER_LIST)).items]


async def test_a_silent_controller_is_listed_for_a_while_and_then_deleted(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    for holder in ("gone", "there"):
        await claim(world, token, holder)
    world.clock.forward(world.site.settings.controllers_kept_s - 1)
    await claim(world, token, "there")
    await server.forget_old_rows(world.site)
    assert await holders(world) == ["gone", "there"]
    world.clock.forward(2)
    await server.forget_old_rows(world.site)
    assert await holders(world) == ["there"]


async def test_a_controller_that_always_takes_another_name_replaces_the_oldest_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers, "PER_PROJECT_MAX", 3)
    await world.entitled_app()
    token = await world.service_account()
    for number in range(5):
        await claim(world, token, f"name-{number}")
        world.clock.forward(6)
        await claim(world, token, "steady")
    assert await holders(world) == ["name-3", "name-4", "steady"]


async def test_controllers_of_an_older_release_keep_the_time_they_were_last_seen(
    settings: Settings, database_url: str
) -> None:
    now = FakeClock()
    now.forward(0.5)
    controller = runtime.Controller(
        controller_id="proj_1/toy/one",
        project_id="proj_1",
        app_slug="toy",
        holder="one",
        actor_id="sa_1",
        version="1",
        last_seen_at=now(),
    )
    document = msgspec.json.encode(controller).decode()
    settings.data_dir.mkdir()
    row = f"INSERT INTO controllers VALUES ('{controller.controller_id}', '{controller.project_id}', '{document}')"
    await old_store.schema_before(19, settings.data_dir / "gpuaas.sqlite", database_url, row)
    async with server.open_site(settings, now) as site:
        await server.forget_old_rows(site)
        assert await controllers.CONTROLLERS.get(site.database.reader, controller.controller_id) == controller
        now.forward(settings.controllers_kept_s + 1)
        await server.forget_old_rows(site)
        assert await controllers.CONTROLLERS.get(site.database.reader, controller.controller_id) is None
