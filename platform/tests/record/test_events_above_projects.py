"""Organisations and the platform have records of events of their own, followed in the same way as a project's."""

import asyncio
from typing import Any

import pytest
from gpuaas_contract import capacity, errors, events, identity, policy
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.event_types import EntitlementChanged
from gpuaas_platform import server
from gpuaas_platform.call import Owner, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record import service as record
from old_store import schema_before
from platform_world import Person, World, forget_old_events
from server_process import until

LEVELS: dict[str, Endpoint[Any, events.Events]] = {
    "project": events.EVENT_LIST,
    "org": events.ORG_EVENT_LIST,
    "platform": events.PLATFORM_EVENT_LIST,
}
SETS: dict[str, Endpoint[Any, Any]] = {
    "project": policy.PROJECT_SET,
    "org": policy.ORG_SET,
    "platform": policy.GLOBAL_SET,
}

DEADLINE_S = 20
"""Less than the long poll waits, so that only a wake-up ends it in time."""


async def test_a_change_of_policy_is_an_event_in_the_record_of_its_level_and_in_no_other(world: World) -> None:
    org_id = await org_of(world)
    for level in SETS:
        await change(world, level, org_id)
    for level in LEVELS:
        changes = [event for event in await listed(world, level, org_id) if event.type == "policy.overlay.changed"]
        layer = {"platform": "global"}.get(level, level)
        assert [event.payload["layer"] for event in changes] == [layer]


async def test_one_organisation_does_not_see_the_events_of_another(world: World) -> None:
    other = await world.call(identity.ORG_CREATE, {"name": "other"})
    await change(world, "org", await org_of(world))
    assert await listed(world, "org", other.org_id) == []


async def test_a_platform_admin_sees_events_of_nodes_and_of_no_tenant(world: World) -> None:
    await change(world, "project", await org_of(world))
    node = await world.node("one")
    await world.call(capacity.NODE_CORDON, {"reason": "the fan is loud"}, node_id=node.node_id)
    admin = await world.person("ada", "platform_admin", "platform")
    seen = (await world.call(events.PLATFORM_EVENT_LIST, token=admin.token)).items
    assert [event.type for event in seen] == ["capacity.node.changed", "capacity.node.changed"]
    assert {(event.org_id, event.project_id) for event in seen} == {("", "")}


async def test_an_admin_of_an_organisation_follows_it_and_not_the_platform(world: World) -> None:
    org_id = await org_of(world)
    admin = await world.person("ada", "tenant_admin", org_id)
    await change(world, "org", org_id)
    assert len(await listed(world, "org", org_id, admin)) == 1
    with pytest.raises(errors.NotFound):
        await listed(world, "platform", org_id, admin)


async def test_a_member_of_one_project_does_not_see_the_record_of_the_organisation(world: World) -> None:
    member = await world.person("ada", "project_admin", world.project_id)
    with pytest.raises(errors.NotFound):
        await listed(world, "org", await org_of(world), member)


@pytest.mark.parametrize("level", ["org", "platform"])
async def test_a_long_poll_is_woken_by_the_change(world: World, level: str) -> None:
    org_id = await org_of(world)
    cursor = (await world.call(LEVELS[level], org_id=org_id)).cursor
    query = {"after": cursor, "wait_s": 30}
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(world.call(LEVELS[level], query=query, org_id=org_id))
        await until(lambda: world.site.hub.waiting == 1)
        await change(world, level, org_id)
        (event,) = (await waiting).items
    assert event.type == "policy.overlay.changed"


@pytest.mark.parametrize("level", ["org", "platform"])
async def test_a_cursor_older_than_retention_is_answered_with_the_cursor_to_resume_from(
    world: World, level: str
) -> None:
    org_id = await org_of(world)
    for number in range(3):
        await change(world, level, org_id, allocations_max=number)
    first, _, last = [event.cursor for event in await listed(world, level, org_id)]
    world.clock.forward(world.site.settings.event_retention_s + 1)
    await forget_old_events(world.site)
    world.token = await world.sign_in("admin")
    with pytest.raises(errors.CursorExpired) as refused:
        await world.call(LEVELS[level], query={"after": first}, org_id=org_id)
    assert refused.value.details == {"oldest": last + 1, "newest": last}


async def test_an_event_in_a_record_that_it_does_not_belong_to_is_refused(world: World) -> None:
    async def use_case(tx: db.Tx) -> None:
        payload = EntitlementChanged(app_slug="toy", enabled=True)
        origin = system_origin(world.clock())
        await record.emit(tx, origin, "catalog.entitlement.changed", payload, Owner("org_1"))

    with pytest.raises(TypeError, match="belongs to the record of project, not of org"):
        await world.site.database.write(use_case)


async def test_events_of_an_older_release_are_in_the_record_of_their_level(settings: Settings) -> None:
    rows = [
        f"INSERT INTO events (project_id, instance_id, correlation_id, document)"
        f" VALUES ('{project_id}', '', '', '{{\"org_id\": \"{org_id}\"}}')"
        for project_id, org_id in (("proj_1", "org_1"), ("", "org_1"), ("", ""))
    ]
    rows += [f"INSERT INTO event_horizons VALUES ('{project_id}', 7)" for project_id in ("proj_1", "")]
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    await schema_before(20, settings.data_dir / "gpuaas.sqlite", settings.database_url, *rows)
    async with server.open_site(settings) as site:
        scopes = await site.database.reader.all("SELECT scope FROM events ORDER BY cursor")
        cut = await site.database.reader.all("SELECT scope FROM event_horizons ORDER BY scope")
    assert [row[0] for row in scopes] == ["proj_1", "org_1", "platform"]
    assert [row[0] for row in cut] == ["platform", "proj_1"]


async def org_of(world: World) -> str:
    return next(org.org_id for org in (await world.call(identity.ORG_LIST)).items if org.name == "acme")


async def change(world: World, level: str, org_id: str, allocations_max: int = 100) -> None:
    await world.call(SETS[level], {"allocations_max": allocations_max}, org_id=org_id)


async def listed(world: World, level: str, org_id: str, person: Person | None = None) -> list[events.Event]:
    token = person.token if person else world.token
    return (await world.call(LEVELS[level], token=token, org_id=org_id)).items
