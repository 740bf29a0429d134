"""App versions: registered once, published, deprecated, withdrawn; who sees them, and what is deployed."""

from typing import Any

import pytest
from gpuaas_contract import audit, catalog, errors, events, instances, lifecycles
from gpuaas_platform.catalog import service
from platform_world import MANIFEST, World


async def _registered(world: World, version: str, **changes: Any) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "version": version, **changes})


async def _published(world: World, version: str, *channels: str, **changes: Any) -> None:
    await _registered(world, version, **changes)
    body = catalog.PublishVersion(channels=list(channels or ["stable"]))
    await world.call(catalog.VERSION_PUBLISH, body, app_slug="toy", version=version)


async def _retired(world: World, endpoint: Any, version: str, reason: str = "it is old") -> catalog.AppVersion:
    app_version: catalog.AppVersion = await world.call(endpoint, {"reason": reason}, app_slug="toy", version=version)
    return app_version


async def _entitled(world: World, **bounds: Any) -> None:
    await world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=True, **bounds), app_slug="toy")


async def _deployable(world: World, version: str = "") -> str:
    return (await service.deployable(world.site.database.reader, world.project_id, "toy", version, [])).version


async def _listed(world: World, **options: Any) -> list[tuple[str, str]]:
    return [(item.version, item.state) for item in (await world.call(catalog.PROJECT_APP_LIST, **options)).items]


async def test_the_same_manifest_again_is_the_same_version_and_another_one_is_refused(world: World) -> None:
    first = await world.call(catalog.VERSION_REGISTER, MANIFEST)
    world.clock.forward(60)
    assert await world.call(catalog.VERSION_REGISTER, MANIFEST) == first
    with pytest.raises(errors.Conflict) as refused:
        await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "summary": "changed"})
    assert "raise the version" in refused.value.fix
    present = await world.call(catalog.VERSION_GET, app_slug="toy", version="1.0.0")
    assert (present.manifest, present.created_at) == (first.manifest, first.created_at)


async def test_an_unsound_manifest_is_refused_by_path_and_leaves_nothing(world: World) -> None:
    answer = await world.send(catalog.VERSION_REGISTER, {**MANIFEST, "deadlines_s": {"dploy": 5}})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "deadlines_s.dploy")
    assert "did you mean `deploy`?" in answer.json()["message"]
    roles = [MANIFEST["roles"][0], {**MANIFEST["roles"][1], "operations": ["drian"]}]
    answer = await world.send(catalog.VERSION_REGISTER, {**MANIFEST, "roles": roles})
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "roles[1].operations[0]")
    assert "did you mean `drain`?" in answer.json()["message"]
    assert (await world.call(catalog.VERSION_LIST)).items == []


async def test_the_api_allows_exactly_the_moves_of_the_lifecycle(world: World) -> None:
    moves: dict[str, tuple[Any, dict[str, Any]]] = {
        "published": (catalog.VERSION_PUBLISH, {}),
        "deprecated": (catalog.VERSION_DEPRECATE, {"reason": "old"}),
        "withdrawn": (catalog.VERSION_WITHDRAW, {"reason": "bad"}),
    }
    ways = {
        "registered": [],
        "published": ["published"],
        "deprecated": ["published", "deprecated"],
        "withdrawn": ["withdrawn"],
    }
    for number, (start, way) in enumerate(ways.items()):
        for wanted, (endpoint, body) in moves.items():
            version = f"{number}.{wanted}"
            await _registered(world, version)
            for step in way:
                await world.call(*moves[step], app_slug="toy", version=version)
            answer = await world.send(endpoint, body, app_slug="toy", version=version)
            legal = lifecycles.may_move(lifecycles.APP_VERSION, start, wanted)
            assert (start, wanted, answer.status_code) == (start, wanted, 200 if legal else 409)


async def test_a_reason_is_given_and_kept_for_a_version_that_is_retired(world: World) -> None:
    await _published(world, "1.0.0")
    for body in ({}, {"reason": ""}, {"reason": "  "}):
        answer = await world.send(catalog.VERSION_DEPRECATE, body, app_slug="toy", version="1.0.0")
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, "reason")
    app_version = await _retired(world, catalog.VERSION_DEPRECATE, "1.0.0", "1.1 is faster")
    assert (app_version.state, app_version.state_reason, app_version.channels) == (
        "deprecated",
        "1.1 is faster",
        ["stable"],
    )
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"action": "catalog.version.deprecate"})).items
    assert [(row.target, row.details) for row in rows] == [("toy/1.0.0", {"reason": "1.1 is faster"})]


async def test_each_move_is_an_event_of_the_platform_and_staying_is_none(world: World) -> None:
    await _published(world, "1.0.0")
    await _published(world, "1.0.0")
    await _retired(world, catalog.VERSION_WITHDRAW, "1.0.0", "loses data")
    listed = (await world.call(events.PLATFORM_EVENT_LIST)).items
    payloads = [event.payload for event in listed if event.type == "catalog.version.changed"]
    assert [(payload["was"], payload["state"]) for payload in payloads] == [
        (None, "registered"),
        ("registered", "published"),
        ("published", "withdrawn"),
    ]
    assert payloads[-1] == {
        "app_slug": "toy",
        "version": "1.0.0",
        "state": "withdrawn",
        "was": "published",
        "channels": ["stable"],
        "reason": "loses data",
    }


async def test_a_project_sees_entitled_versions_that_are_published_or_deprecated(world: World) -> None:
    await _registered(world, "4.0")
    await _published(world, "1.0")
    await _published(world, "2.0")
    await _published(world, "3.0")
    await _retired(world, catalog.VERSION_DEPRECATE, "1.0")
    await _retired(world, catalog.VERSION_WITHDRAW, "2.0")
    assert await _listed(world) == []
    await _entitled(world)
    assert await _listed(world) == [("1.0", "deprecated"), ("3.0", "published")]
    shown = [
        (await world.send(catalog.PROJECT_APP_GET, app_slug="toy", version=version)).status_code
        for version in ("1.0", "2.0", "3.0", "4.0", "5.0")
    ]
    assert shown == [200, 404, 200, 404, 404]
    first = await world.call(catalog.PROJECT_APP_LIST, query={"page_size": 1})
    rest = await world.call(catalog.PROJECT_APP_LIST, query={"page_token": first.next_page_token})
    assert [item.version for item in (*first.items, *rest.items)] == ["1.0", "3.0"]


async def test_the_newest_published_version_is_deployed_unless_one_is_named(world: World) -> None:
    for version in ("1.9", "1.10", "1.11-rc1", "1.8"):
        await _published(world, version)
    await _registered(world, "2.0")
    await _entitled(world)
    assert await _deployable(world) == "1.11-rc1"
    await _retired(world, catalog.VERSION_DEPRECATE, "1.11-rc1")
    assert await _deployable(world) == "1.10"
    assert await _deployable(world, "1.11-rc1") == "1.11-rc1"
    for version in ("2.0", "3.0"):
        with pytest.raises(errors.NotFound, match=f"There is no toy {version}"):
            await _deployable(world, version)


async def test_without_an_entitlement_an_unknown_version_looks_like_a_known_one(world: World) -> None:
    await _published(world, "1.0")
    for version in ("1.0", "3.0"):
        with pytest.raises(errors.NotEntitled):
            await _deployable(world, version)


async def test_a_withdrawn_version_is_never_deployed_and_the_answer_gives_the_reason_and_another_version(
    world: World,
) -> None:
    await world.entitled_app()
    await _published(world, "0.9.0")
    await _retired(world, catalog.VERSION_WITHDRAW, "0.9.0", "loses data on restart")
    body = instances.DeployInstance(name="x", app_slug="toy", version="0.9.0", topology="pair", inputs={})
    with pytest.raises(errors.Conflict) as refused:
        await world.call(instances.INSTANCE_CREATE, body)
    assert "loses data on restart" in str(refused.value)
    assert (refused.value.fix, refused.value.details["use"]) == ("Take toy 1.0.0.", "1.0.0")


async def test_an_upgrade_goes_to_a_newer_entitled_version_that_takes_it(world: World) -> None:
    reader = world.site.database.reader
    await _published(world, "1.0")
    await _published(world, "1.1", upgrades_from=["1.0", "0.*"])
    await _published(world, "2.0", upgrades_from=["1.1"], rollback_to=["1.*"])
    await _entitled(world)

    async def upgraded(present: str, wanted: str) -> str:
        return (await service.upgradable(reader, world.project_id, "toy", present, wanted, [])).version

    assert [await upgraded("1.0", "1.1"), await upgraded("1.1", "2.0"), await upgraded("1.1", "")] == [
        "1.1",
        "2.0",
        "2.0",
    ]
    for present, wanted, words in (
        ("1.0", "2.0", "takes upgrades from 1.1"),
        ("1.1", "1.1", "has version 1.1 already"),
        ("2.0", "", "has version 2.0 already"),
        ("2.0", "1.1", "not newer"),
    ):
        with pytest.raises(errors.Conflict, match=words):
            await upgraded(present, wanted)
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": False}, app_slug="toy")
    with pytest.raises(errors.NotEntitled):
        await upgraded("1.0", "1.1")


async def test_a_rollback_goes_only_where_the_running_version_allows_and_needs_no_entitlement(world: World) -> None:
    reader = world.site.database.reader
    await _published(world, "0.9")
    await _published(world, "1.0")
    await _published(world, "2.0", rollback_to=["1.*"])
    assert (await service.rollback_target(reader, "toy", "2.0", "1.0")).version == "1.0"
    for present, wanted, words in (
        ("2.0", "0.9", "can go back to 1"),
        ("1.0", "0.9", "no version"),
        ("1.0", "2.0", "not older"),
    ):
        with pytest.raises(errors.Conflict, match=words):
            await service.rollback_target(reader, "toy", present, wanted)
    with pytest.raises(errors.NotFound):
        await service.rollback_target(reader, "toy", "2.0", "1.7")
    await _retired(world, catalog.VERSION_WITHDRAW, "1.0", "a hole")
    with pytest.raises(errors.Conflict, match="a hole"):
        await service.rollback_target(reader, "toy", "2.0", "1.0")
