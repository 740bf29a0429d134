"""Which project may deploy what, within which bounds, and who decides it."""

import json
from typing import Any

import msgspec
import pytest
from gpuaas_contract import audit, catalog, errors, events, instances, permissions
from gpuaas_platform import server
from gpuaas_platform.catalog import service, store
from gpuaas_platform.identity import rules as identity_rules
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.instances import store as instances_store
from gpuaas_platform.kit.settings import Settings
from old_store import first_schema, schema_before
from platform_world import MANIFEST, World


async def _set(world: World, enabled: bool = True, **bounds: Any) -> catalog.Entitlement:
    body = catalog.SetEntitlement(enabled=enabled, **bounds)
    return await world.call(catalog.ENTITLEMENT_SET, body, app_slug="toy")


async def _offered(world: World, **versions: list[str]) -> None:
    """`v1_0=["stable"]`: version 1.0 in that channel."""
    for name, channels in versions.items():
        version = name.removeprefix("v").replace("_", ".")
        await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "version": version})
        await world.call(catalog.VERSION_PUBLISH, {"channels": channels}, app_slug="toy", version=version)


async def _deployable(world: World, version: str = "") -> str:
    return (await service.deployable(world.site.database.reader, world.project_id, "toy", version, [])).version


async def test_an_entitlement_is_replaced_whole_and_read_back(world: World) -> None:
    await _offered(world, v1_0=["stable"])
    with pytest.raises(errors.NotFound):
        await world.call(catalog.ENTITLEMENT_GET, app_slug="toy")
    made = await _set(world, versions=["1.*", "1.*"], channels=["stable"], instances_max=2, members_max=64)
    assert (made.versions, made.channels, made.instances_max, made.members_max) == (["1.*"], ["stable"], 2, 64)
    assert await world.call(catalog.ENTITLEMENT_GET, app_slug="toy") == made
    again = await _set(world)
    assert (again.versions, again.channels, again.instances_max, again.members_max) == ([], [], None, None)
    assert (await world.call(catalog.ENTITLEMENT_LIST)).items == [again]


async def test_a_list_of_entitlements_is_paged_and_stays_in_its_project(world: World) -> None:
    for slug in ("a", "b", "c"):
        await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "slug": slug})
        await world.call(catalog.ENTITLEMENT_SET, {"enabled": slug != "b"}, app_slug=slug)
    first = await world.call(catalog.ENTITLEMENT_LIST, query={"page_size": 2})
    rest = await world.call(catalog.ENTITLEMENT_LIST, query={"page_token": first.next_page_token})
    entitlements = [(item.app_slug, item.enabled) for item in (*first.items, *rest.items)]
    assert entitlements == [("a", True), ("b", False), ("c", True)]
    assert rest.next_page_token is None


async def test_bounds_that_make_no_sense_are_refused_by_field(world: World) -> None:
    await _offered(world, v1_0=["stable"])
    for body, field in (
        ({"enabled": True, "versions": ["1.*.0"]}, "versions[0]"),
        ({"enabled": True, "channels": [""]}, "channels[0]"),
        ({"enabled": True, "instances_max": -1}, "instances_max"),
        ({"enabled": True, "member_max": 1}, "member_max"),
    ):
        answer = await world.send(catalog.ENTITLEMENT_SET, body, app_slug="toy")
        assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)
    assert (await world.send(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="none")).status_code == 404


async def test_versions_and_channels_narrow_what_is_shown_and_deployed(world: World) -> None:
    await _offered(world, v1_0=["stable"], v1_1=["stable", "beta"], v2_0=["beta"], v3_0=["stable"])
    await _set(world, versions=["1.*", "2.*"], channels=["stable"])
    assert [item.version for item in (await world.call(catalog.PROJECT_APP_LIST)).items] == ["1.0", "1.1"]
    assert await _deployable(world) == "1.1"
    for version in ("2.0", "3.0"):
        with pytest.raises(errors.NotEntitled):
            await _deployable(world, version)
    await _set(world, channels=["beta"])
    assert await _deployable(world) == "2.0"


async def test_the_event_carries_what_was_decided(world: World) -> None:
    await _offered(world, v1_0=["stable"])
    await _set(world, versions=["1.*"], channels=["stable"], instances_max=2, members_max=8)
    listed = (await world.call(events.EVENT_LIST)).items
    assert [event.payload for event in listed if event.type == "catalog.entitlement.changed"] == [
        {
            "app_slug": "toy",
            "enabled": True,
            "versions": ["1.*"],
            "channels": ["stable"],
            "instances_max": 2,
            "members_max": 8,
        }
    ]


async def test_limits_hold_also_when_it_is_disabled(world: World) -> None:
    reader = world.site.database.reader
    await _offered(world, v1_0=["stable"])
    assert await service.entitlement_limits(reader, world.project_id, "toy") == service.Limits()
    await _set(world, enabled=False, instances_max=1, members_max=3)
    assert await service.entitlement_limits(reader, world.project_id, "toy") == service.Limits(1, 3)


async def test_the_members_of_all_instances_together_stay_within_the_entitlement(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await _set(world, members_max=5)
    first = (await world.running_instance(token)).instance
    with pytest.raises(errors.NotEntitled, match="allows 5 members; there would be 6"):
        await world.deploy("large", hands=3)
    await world.deploy("two")
    spares = [(await world.allocation(name)).allocation_id for name in ("spare", "another")]
    add = {"kind": "add", "component_key": "hand", "allocation_ids": spares}
    with pytest.raises(errors.NotEntitled, match="allows 5 members; there would be 6"):
        await world.call(instances.MEMBER_OPERATION_CREATE, add, instance_id=first.instance_id)
    add["allocation_ids"] = spares[:1]
    await world.call(instances.MEMBER_OPERATION_CREATE, add, instance_id=first.instance_id)


async def test_a_project_has_as_many_instances_as_its_entitlement_allows(world: World) -> None:
    await world.entitled_app()
    await _set(world, instances_max=1)
    await world.deploy("one")
    with pytest.raises(errors.NotEntitled, match="allows 1 instances; there would be 2") as refused:
        await world.deploy("two")
    assert refused.value.details == {"limit": 1, "present": 1, "asked": 1}


async def test_a_disabled_app_is_not_deployed_again_and_what_runs_stays_manageable(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    instance = (await world.running_instance(token)).instance
    await _set(world, enabled=False)
    with pytest.raises(errors.NotEntitled):
        await world.deploy("two")
    assert (await world.call(catalog.PROJECT_APP_LIST)).items == []
    spare = await world.allocation("spare")
    add = {"kind": "add", "component_key": "hand", "allocation_ids": [spare.allocation_id]}
    await world.call(instances.MEMBER_OPERATION_CREATE, add, instance_id=instance.instance_id)
    assert (await service.manifest_of(world.site.database.reader, "toy", "1.0.0")).slug == "toy"


async def test_a_service_account_never_decides_even_if_its_role_held_the_key(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.entitled_app()
    token = await world.service_account()
    (account,) = await identity_store.SERVICE_ACCOUNTS.find(world.site.database.reader, "1 = 1")
    given = msgspec.structs.replace(account, permissions=[*account.permissions, "catalog.entitlement.change"])
    await world.site.database.write(lambda tx: identity_store.SERVICE_ACCOUNTS.save(tx, given))
    widened = permissions.ROLES["service_account"] | {"catalog.entitlement.change"}
    # Without its cache: roles change only in this test.
    monkeypatch.setattr(identity_rules, "holders", identity_rules.holders.__wrapped__)
    for held, words in ((permissions.ROLES["service_account"], "needs"), (widened, "Only a person")):
        monkeypatch.setitem(permissions.ROLES, "service_account", held)
        headers = {"X-Correlation-ID": f"try-{words[:4]}"}
        answer = await world.send(
            catalog.ENTITLEMENT_SET, {"enabled": False}, token=token, headers=headers, app_slug="toy"
        )
        assert (answer.status_code, words in answer.json()["message"]) == (403, True)
        (row,) = (
            await world.call(audit.PLATFORM_AUDIT_LIST, query={"correlation_id": headers["X-Correlation-ID"]})
        ).items
        assert (row.action, row.target, row.result) == ("authz.deny", "catalog.entitlement.set", "failure")
        assert row.details == {"permission": "catalog.entitlement.change"}
    assert (await world.call(catalog.ENTITLEMENT_GET, app_slug="toy")).enabled


async def test_what_was_decided_before_bounds_existed_is_carried_over(settings: Settings) -> None:
    settings.data_dir.mkdir()
    document = {
        "project_id": "p",
        "app_slug": "toy",
        "enabled": True,
        "changed_by": "u",
        "changed_at": "2026-01-01T00:00:00Z",
    }
    row = f"INSERT INTO entitlements VALUES ('p', 'toy', 1, '{json.dumps(document)}')"
    await first_schema(settings.data_dir / "gpuaas.sqlite", settings.database_url, row)
    async with server.open_site(settings) as site:
        entitlement = await store.entitlement(site.database.reader, "p", "toy")
    assert entitlement is not None
    assert (entitlement.enabled, entitlement.versions, entitlement.channels, entitlement.instances_max) == (
        True,
        [],
        [],
        None,
    )


async def test_instances_of_an_older_store_count_for_their_app(settings: Settings) -> None:
    settings.data_dir.mkdir()
    rows = [
        f"""INSERT INTO instances VALUES ('inst_{name}', 'p', '{name}', '{status}',
            '{{"app_slug": "{app_slug}", "placement": {{}}, "inputs": {{}}, "revision": 1}}')"""
        for name, status, app_slug in (("a", "running", "toy"), ("b", "deleted", "toy"), ("c", "running", "other"))
    ]
    rows.append("INSERT INTO members VALUES ('mem_1', 'inst_a', 'p', 'alloc_1', 'ready', '{}')")
    await schema_before(18, settings.data_dir / "gpuaas.sqlite", settings.database_url, *rows)
    async with server.open_site(settings) as site:
        reader = site.database.reader
        assert await instances_store.live_count_of_app(reader, "p", "toy") == 1
        assert await instances_store.live_member_count_of_app(reader, "p", "toy") == 1
