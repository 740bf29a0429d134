"""Permission keys of apps: held through roles, asked with `can-i`, unknown outside the project."""

from typing import Any

from gpuaas_contract import catalog, identity, policy
from gpuaas_platform.catalog import permissions
from gpuaas_platform.identity import admission
from platform_world import MANIFEST, World

KEY = "queue.job.submit"
ROLES = ("viewer", "project_member", "project_admin")


async def _declared(world: World, version: str, *roles: str, slug: str = "toy", key: str = KEY) -> None:
    declared = {key: {"meaning": "submit jobs", "roles": list(roles)}}
    manifest = {**MANIFEST, "actions": [], "slug": slug, "version": version, "permissions": declared}
    await world.call(catalog.VERSION_REGISTER, manifest)


async def _published(world: World, version: str, *roles: str, slug: str = "toy") -> None:
    await _declared(world, version, *roles, slug=slug)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug=slug, version=version)


async def _enabled(world: World, slug: str = "toy", enabled: bool = True) -> None:
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": enabled}, app_slug=slug)


async def _people(world: World) -> dict[str, str]:
    """Role -> token of a caller who has it in this project."""
    tokens = {role: (await world.person(role.replace("_", "-"), role, world.project_id)).token for role in ROLES}
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    tokens["tenant_admin"] = (await world.person("tess", "tenant_admin", org_id)).token
    tokens["platform_admin"] = (await world.person("paula", "platform_admin", "platform")).token
    tokens["service_account"] = await world.service_account()
    return tokens


async def _can_i(world: World, token: str, **asked: str) -> policy.CanIAnswer:
    asked = {"permission": KEY, "project_id": world.project_id, **asked}
    return await world.call(policy.CAN_I, asked, token=token)


async def _holds(world: World, token: str, **options: Any) -> bool:
    reader = world.site.database.reader
    admissions = admission.Admissions(world.site.database)
    admitted = await admissions.find(token, world.clock(), project_id=world.project_id)
    assert admitted.project is not None
    return await permissions.holds(reader, admitted.caller, admitted.project, KEY, **options)


async def test_a_key_is_held_by_the_role_it_is_given_to_and_by_those_above(world: World) -> None:
    people = await _people(world)
    await _enabled_with(world, {})
    expected = {
        ("viewer",): {"viewer", "project_member", "project_admin", "tenant_admin"},
        ("project_member",): {"project_member", "project_admin", "tenant_admin"},
        ("project_admin",): {"project_admin", "tenant_admin"},
        ("tenant_admin",): {"tenant_admin"},
        ("service_account",): {"service_account"},
        ("project_admin", "service_account"): {"project_admin", "tenant_admin", "service_account"},
    }
    for number, (given, holding) in enumerate(expected.items(), 2):
        await _published(world, f"{number}.0", *given)
        await world.call(identity.SERVICE_ACCOUNT_BIND, {"apps": ["toy"]}, service_account_id="controller")
        assert {role for role, token in people.items() if await _holds(world, token)} == holding
        assert {role for role, token in people.items() if (await _can_i(world, token)).allowed} == holding


async def _enabled_with(world: World, declared: dict[str, Any]) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "actions": [], "permissions": declared})
    await _enabled(world)


async def test_can_i_names_the_binding_and_asks_the_policy_too(world: World) -> None:
    await _published(world, "1.0.0", "project_member")
    await _enabled(world)
    member = (await world.person("mel", "project_member", world.project_id)).token
    answer = await _can_i(world, member)
    assert answer.decided_by == policy.DecidedByBinding(role="project_member", scope=world.project_id)
    await world.call(policy.PROJECT_SET, policy.Overlay(apps=policy.Choice(deny=["toy"])))
    assert isinstance((await _can_i(world, member, app="toy")).decided_by, policy.DecidedByOverlay)


async def test_the_newest_published_declaration_counts(world: World) -> None:
    viewer = (await world.person("vic", "viewer", world.project_id)).token
    await _declared(world, "1.0", "viewer")
    await _enabled(world)
    assert not await _holds(world, viewer), "a version that is only registered gives nothing"
    await _published(world, "1.1", "project_admin")
    assert not await _holds(world, viewer)
    await _published(world, "1.10", "viewer")
    assert await _holds(world, viewer)
    await _declared(world, "1.11", "project_admin")
    assert await _holds(world, viewer), "a version that is only registered takes nothing away"
    await world.call(catalog.VERSION_WITHDRAW, {"reason": "too open"}, app_slug="toy", version="1.10")
    assert not await _holds(world, viewer)
    await world.call(catalog.VERSION_WITHDRAW, {"reason": "too closed"}, app_slug="toy", version="1.1")
    assert not await _holds(world, viewer), "neither a withdrawn version nor a registered one counts"


async def test_a_key_counts_where_its_app_was_enabled_and_stays_when_it_is_disabled(world: World) -> None:
    member = (await world.person("mel", "project_member", world.project_id)).token
    await _published(world, "1.0", "viewer")
    assert not await _holds(world, member)
    await _enabled(world)
    assert await _holds(world, member)
    await _enabled(world, enabled=False)
    assert await _holds(world, member), "what runs stays manageable"


async def test_apps_that_share_a_key_decide_each_for_itself(world: World) -> None:
    viewer = (await world.person("vic", "viewer", world.project_id)).token
    await _published(world, "1.0", "viewer", slug="open")
    await _published(world, "1.0", "project_admin", slug="closed")
    for slug in ("open", "closed"):
        await _enabled(world, slug)
    assert await _holds(world, viewer)
    assert await _holds(world, viewer, app_slug="open")
    assert not await _holds(world, viewer, app_slug="closed")
    assert [(await _can_i(world, viewer, app=app)).allowed for app in ("open", "closed")] == [True, False]


async def test_platform_keys_are_answered_the_same_way(world: World) -> None:
    reader = world.site.database.reader
    assert await permissions.holders(reader, "apps.operation.execute", world.project_id) == {"service_account"}


async def test_a_caller_from_outside_does_not_learn_which_keys_apps_declare(world: World) -> None:
    await _published(world, "1.0", "viewer")
    await _enabled(world)
    org = await world.call(identity.ORG_CREATE, {"name": "other"})
    elsewhere = await world.call(identity.PROJECT_CREATE, {"name": "elsewhere"}, org_id=org.org_id)
    outsider = await world.service_account("outsider", elsewhere.project_id)
    answers = [
        (await _can_i(world, outsider, permission=key, project_id=place)).explanation
        for key in (KEY, "queue.job.invent")
        for place in (world.project_id, "proj_absent")
    ]
    assert len(set(answers)) == 1
    for key in (KEY, "queue.job.invent"):
        asked = {"permission": key}
        assert (await world.send(policy.CAN_I, asked, token=outsider)).status_code == 400
    asked = {"permission": "apps.instance.invent", "project_id": world.project_id}
    assert (await world.send(policy.CAN_I, asked)).status_code == 400
