"""Presence of controllers: listed for a while after they were last seen, then forgotten."""

import dataclasses
import datetime
from typing import Any

import msgspec
import old_store
import pytest
from gpuaas_contract import catalog, errors, identity, runtime
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG, FAILURES_MAX, LINES_MAX, Controller
from gpuaas_platform import server
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.operations import controllers
from platform_world import MANIFEST, FakeClock, World

DAY_S = 86_400
NOW = "2030-01-01T00:00:00Z"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return dataclasses.replace(settings, session_ttl_s=30 * DAY_S, service_account_token_ttl_s=30 * DAY_S)


async def claim(world: World, token: str, holder: str, app_slug: str = "toy") -> None:
    body = runtime.ClaimOperation(app_slug=app_slug, holder=holder, claim_id=holder, lease_s=15)
    await world.call(runtime.CLAIM, body, token=token)


async def holders(world: World) -> list[str]:
    return [controller.holder for controller in (await world.call(CONTROLLER_LIST)).items]


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
    """It replaces none of another app."""
    monkeypatch.setattr(controllers, "PER_APP_MAX", 3)
    await world.entitled_app()
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "slug": "tool"})
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="tool", version=MANIFEST["version"])
    token = await world.service_account(apps=("toy", "tool"))
    await claim(world, token, "other", "tool")
    for number in range(5):
        await claim(world, token, f"name-{number}")
        world.clock.forward(6)
        await claim(world, token, "steady")
    assert await holders(world) == ["other", "name-3", "name-4", "steady"]


async def test_controllers_of_an_older_release_keep_the_time_they_were_last_seen(
    settings: Settings, database_url: str
) -> None:
    now = FakeClock()
    now.forward(0.5)
    controller = Controller(
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


async def test_a_heartbeat_and_a_claim_without_report_keep_the_stored_one(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    failure = {"task": "look", "code": "crashed", "failed_since": world.clock(), "observed_at": world.clock()}
    report = {"process": "p1", "started_at": world.clock(), "number": 1, "failures": [failure]}
    body = {"app_slug": "toy", "holder": "one", "claim_id": "c1"}
    await world.call(runtime.CLAIM, {**body, "report": report}, token=token)
    world.clock.forward(60)
    await world.call(runtime.CLAIM, body, token=token)
    (controller,) = (await world.call(CONTROLLER_LIST)).items
    assert controller.last_seen_at == world.clock()
    assert controller.state is not None
    assert [item.code for item in controller.state.failures] == ["crashed"]
    assert controller.state.reported_at == controller.last_seen_at - datetime.timedelta(seconds=60)


@pytest.mark.parametrize(
    "changes",
    [
        {"log": [{"number": 1, "logged_at": NOW, "level": "info", "event": "e", "fields": {"x": "y" * 1024}}]},
        {"log": [{"number": n, "logged_at": NOW, "level": "info", "event": "e"} for n in range(1, LINES_MAX + 2)]},
        {"failures": [{"task": "look", "code": "c", "failed_since": NOW, "observed_at": NOW, "message": "x" * 501}]},
        {"failures": [{"task": "look", "code": "c", "failed_since": NOW, "observed_at": NOW}] * (FAILURES_MAX + 1)},
    ],
)
async def test_a_report_larger_than_the_contract_declares_is_refused(world: World, changes: dict[str, Any]) -> None:
    await world.entitled_app()
    token = await world.service_account()
    report = {"process": "p1", "started_at": NOW, "number": 1, **changes}
    body = {"app_slug": "toy", "holder": "one", "claim_id": "c1", "report": report}
    with pytest.raises(errors.ValidationFailed):
        await world.call(runtime.CLAIM, body, token=token)


async def test_the_log_of_a_controller_of_another_project_looks_like_none(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await claim(world, token, "one")
    (controller,) = (await world.call(CONTROLLER_LIST)).items
    query = {"controller_id": controller.controller_id}
    assert (await world.call(CONTROLLER_LOG, query=query)).items == []
    org = await world.call(identity.ORG_CREATE, {"name": "other"})
    other = await world.call(identity.PROJECT_CREATE, {"name": "other"}, org_id=org.org_id)
    with pytest.raises(errors.NotFound) as hidden:
        await world.call(CONTROLLER_LOG, query=query, project_id=other.project_id)
    with pytest.raises(errors.NotFound) as absent:
        await world.call(CONTROLLER_LOG, query={"controller_id": "none"}, project_id=other.project_id)
    assert hidden.value.message.replace(controller.controller_id, "none") == absent.value.message
