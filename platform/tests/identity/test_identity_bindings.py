"""Roles: who may give which role, what it permits, and that its removal counts at once."""

import datetime
import re
from typing import Any

import pytest
from gpuaas_contract import bindings, capacity, catalog, errors, identity, registry, users
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Binding
from gpuaas_contract.permissions import APPOINTED, GRANTABLE, KEYS, ROLES
from gpuaas_platform import server
from gpuaas_platform.identity import rules
from gpuaas_platform.kit.settings import Settings
from hypothesis import given
from hypothesis import strategies as st
from old_store import first_schema
from platform_world import World

SCOPES = {"platform": ("platform",), "org": ("platform", "org_1"), "project": ("platform", "org_1", "proj_1")}
ANYWHERE = ("platform", "org_1", "proj_1", "org_2", "proj_2")
_SOON = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
_HELD = st.lists(
    st.builds(
        Binding,
        role=st.sampled_from(sorted(ROLES)),
        scope=st.sampled_from(ANYWHERE),
        expires_at=st.sampled_from([None, _SOON]),
    ),
    max_size=4,
)


@given(held=_HELD, level=st.sampled_from(sorted(SCOPES)), role=st.sampled_from(sorted(ROLES)), to_self=st.booleans())
def test_no_user_gives_a_permission_they_lack_in_that_scope(
    held: list[Binding], level: rules.Level, role: str, to_self: bool
) -> None:
    if rules.why_not_grant(held, role, level, SCOPES[level], to_self=to_self) is not None:
        return
    assert role in GRANTABLE[level]
    reaching = [binding for binding in held if binding.scope in SCOPES[level] and binding.expires_at is None]
    lacking = ROLES[role] - frozenset[str]().union(*(ROLES[binding.role] for binding in reaching))
    if lacking:
        assert role in APPOINTED
        assert not to_self
        assert rules.decide(reaching, APPOINTED[role], SCOPES[level]) == "allowed"


@given(held=_HELD, level=st.sampled_from(sorted(SCOPES)), role=st.sampled_from(sorted(ROLES)))
def test_giving_oneself_a_role_never_opens_anything_new(held: list[Binding], level: rules.Level, role: str) -> None:
    if rules.why_not_grant(held, role, level, SCOPES[level], to_self=True) is not None:
        return
    lasting = [binding for binding in held if binding.expires_at is None]
    more = [*lasting, Binding(role=role, scope=SCOPES[level][-1])]
    for key in KEYS:
        before = rules.decide(lasting, key, SCOPES[level]) == "allowed"
        assert (rules.decide(more, key, SCOPES[level]) == "allowed") == before


def test_running_the_platform_opens_nothing_inside_projects() -> None:
    inside = {
        key for key in ROLES["service_account"] if not key.startswith(("identity.", "catalog.", "record.", "policy."))
    }
    assert "apps.instance.read" in inside
    assert "access.machine.connect" in inside
    assert not inside & ROLES["platform_admin"]
    assert not {key for key in ROLES["platform_admin"] if key.startswith("identity.service_account")}


def test_operators_change_capacity_and_nothing_else() -> None:
    changes = {key for key in ROLES["platform_ops"] if ".read" not in key}
    assert changes == {key for key in KEYS if key.startswith("capacity.") and ".read" not in key}


def test_temporary_access_holds_nothing_that_outlives_it() -> None:
    lasting = ("identity.binding.change", "identity.service_account.create")
    assert not ROLES["break_glass"] & {*lasting, *(key for key in KEYS if key.endswith("_key.create"))}
    assert ROLES["break_glass"] < ROLES["project_admin"]


async def test_a_role_opens_a_project_at_once_and_taking_it_away_closes_it_with_the_next_call(world: World) -> None:
    ada = await world.person("ada")
    assert (await world.send(capacity.ALLOCATION_LIST, token=ada.token)).status_code == 404
    body = {"user_id": ada.user_id, "role": "viewer"}
    given_role = await world.call(bindings.PROJECT_BINDING_CREATE, body)
    assert (given_role.user_name, given_role.role, given_role.expires_at) == ("ada", "viewer", None)
    assert (await world.send(capacity.ALLOCATION_LIST, token=ada.token)).status_code == 200
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=given_role.binding_id)
    assert (await world.send(capacity.ALLOCATION_LIST, token=ada.token)).status_code == 404


async def test_the_audit_trail_shows_who_got_which_role(world: World) -> None:
    ada = await world.person("ada")
    body = {"user_id": ada.user_id, "role": "viewer"}
    await world.call(bindings.PROJECT_BINDING_CREATE, body, headers={"X-Correlation-ID": "grant-1"})
    audit = registry.BY_NAME["record.audit"]
    rows = (await world.call(audit, query={"correlation_id": "grant-1"})).items
    assert [(row.action, row.details) for row in rows] == [("identity.project_binding.create", body)]


async def test_a_tenant_admin_gives_roles_in_the_organisation_and_its_projects_only(world: World) -> None:
    org_id = await _org_id(world)
    tenant, ada = await world.person("tenant", "tenant_admin", org_id), await world.person("ada")
    other = await world.call(identity.ORG_CREATE, {"name": "other"})
    body = {"user_id": ada.user_id, "role": "tenant_admin"}
    at = tenant.token
    assert (await world.send(bindings.ORG_BINDING_CREATE, body, token=at, org_id=org_id)).status_code == 201
    project = {"user_id": ada.user_id, "role": "project_admin"}
    assert (await world.send(bindings.PROJECT_BINDING_CREATE, project, token=at)).status_code == 201
    assert (await world.send(bindings.ORG_BINDING_CREATE, body, token=at, org_id=other.org_id)).status_code == 404
    platform = {"user_id": ada.user_id, "role": "platform_admin"}
    assert (await world.send(bindings.PLATFORM_BINDING_CREATE, platform, token=at)).status_code == 404


async def test_a_member_gives_no_roles_and_sees_none(world: World) -> None:
    member = await world.person("member", "project_member", world.project_id)
    body = {"user_id": member.user_id, "role": "project_admin"}
    assert (await world.send(bindings.PROJECT_BINDING_CREATE, body, token=member.token)).status_code == 403
    assert (await world.send(bindings.PROJECT_BINDING_LIST, token=member.token)).status_code == 403


async def test_a_platform_admin_cannot_give_roles_in_an_organisation_of_others(world: World) -> None:
    second = await world.person("second", "platform_admin", "platform")
    org_id = await _org_id(world)
    body = {"user_id": second.user_id, "role": "tenant_admin"}
    refused = await world.send(bindings.ORG_BINDING_CREATE, body, token=second.token, org_id=org_id)
    assert (refused.status_code, refused.json()["code"]) == (403, "insufficient_permissions")
    assert "apps.instance.create" in refused.json()["message"]
    project = {"user_id": second.user_id, "role": "viewer"}
    assert (await world.send(bindings.PROJECT_BINDING_CREATE, project, token=second.token)).status_code == 403


async def test_a_platform_admin_reaches_into_projects_only_where_the_role_allows_it(world: World) -> None:
    second = await world.person("second", "platform_admin", "platform")
    for endpoint in registry.ENDPOINTS:
        if "{project_id}" not in endpoint.path or endpoint.audience != "caller":
            continue
        if endpoint.permission in ROLES["platform_admin"]:
            continue
        names = set(re.findall(r"{(\w+)}", endpoint.path)) - {"project_id"}
        options: dict[str, Any] = {name: "x" for name in names}
        answer = await world.send(endpoint, {}, token=second.token, **options)
        assert (endpoint.name, answer.status_code) == (endpoint.name, 403)


async def test_an_organisation_has_the_first_admin_that_its_creator_named_and_no_other(world: World) -> None:
    second, ada = await world.person("second", "platform_admin", "platform"), await world.person("ada")
    body = {"name": "theirs", "first_admin": "ada"}
    org = await world.call(identity.ORG_CREATE, body, token=second.token)
    members = (await world.call(bindings.ORG_BINDING_LIST, token=ada.token, org_id=org.org_id)).items
    assert [(binding.user_name, binding.role) for binding in members] == [("ada", "tenant_admin")]
    project = await world.call(identity.PROJECT_CREATE, {"name": "p"}, token=ada.token, org_id=org.org_id)
    for token, status in ((ada.token, 200), (second.token, 403)):
        listed = await world.send(capacity.ALLOCATION_LIST, token=token, project_id=project.project_id)
        assert listed.status_code == status


@pytest.mark.parametrize("name", ["ghost", "gone"])
async def test_a_first_admin_is_an_active_user(world: World, name: str) -> None:
    await world.person("gone")
    await world.call(users.USER_DISABLE, user_id="gone")
    with pytest.raises(errors.ValidationFailed, match=f"no active user {name}"):
        await world.call(identity.ORG_CREATE, {"name": "theirs", "first_admin": name})


@pytest.mark.parametrize(
    ("level", "role"),
    [("PLATFORM", "viewer"), ("ORG", "project_admin"), ("PROJECT", "tenant_admin"), ("PROJECT", "break_glass")],
)
async def test_each_level_has_its_own_roles(world: World, level: str, role: str) -> None:
    ada = await world.person("ada")
    endpoint = getattr(bindings, f"{level}_BINDING_CREATE")
    answer = await world.send(endpoint, {"user_id": ada.user_id, "role": role}, org_id=await _org_id(world))
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, "role")


async def test_a_role_is_given_once_and_to_people_who_exist(world: World) -> None:
    ada = await world.person("ada")
    body = {"user_id": ada.user_id, "role": "viewer"}
    await world.call(bindings.PROJECT_BINDING_CREATE, body)
    with pytest.raises(errors.Conflict):
        await world.call(bindings.PROJECT_BINDING_CREATE, body)
    with pytest.raises(errors.ValidationFailed):
        await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": "user_absent", "role": "viewer"})


async def test_the_last_admins_cannot_be_taken_away(world: World) -> None:
    org_id = await _org_id(world)
    at_platform = (await world.call(bindings.PLATFORM_BINDING_LIST)).items[0]
    at_org = (await world.call(bindings.ORG_BINDING_LIST, org_id=org_id)).items[0]
    with pytest.raises(errors.Conflict, match="last platform_admin"):
        await world.call(bindings.PLATFORM_BINDING_DELETE, binding_id=at_platform.binding_id)
    with pytest.raises(errors.Conflict, match="last tenant_admin"):
        await world.call(bindings.ORG_BINDING_DELETE, binding_id=at_org.binding_id, org_id=org_id)


async def test_an_admin_who_is_disabled_does_not_count_as_one(world: World) -> None:
    second = await world.person("second", "platform_admin", "platform")
    await world.call(users.USER_DISABLE, user_id=second.user_id)
    mine = next(item for item in (await world.call(bindings.PLATFORM_BINDING_LIST)).items if item.user_name == "admin")
    with pytest.raises(errors.Conflict):
        await world.call(bindings.PLATFORM_BINDING_DELETE, binding_id=mine.binding_id)


async def test_an_admin_hands_over_and_is_out_with_the_next_call(world: World) -> None:
    ada = await world.person("ada")
    body = {"user_id": ada.user_id, "role": "platform_admin"}
    await world.call(bindings.PLATFORM_BINDING_CREATE, body)
    mine = next(item for item in (await world.call(bindings.PLATFORM_BINDING_LIST)).items if item.user_name == "admin")
    await world.call(bindings.PLATFORM_BINDING_DELETE, binding_id=mine.binding_id)
    assert (await world.send(users.USER_LIST)).status_code == 404
    assert (await world.send(users.USER_LIST, token=ada.token)).status_code == 200


async def test_an_admin_appoints_operators_but_not_themselves(world: World) -> None:
    ada = await world.person("ada")
    second = await world.person("second", "platform_admin", "platform")
    body = {"user_id": second.user_id, "role": "platform_ops"}
    refused = await world.send(bindings.PLATFORM_BINDING_CREATE, body, token=second.token)
    assert (refused.status_code, "cannot appoint yourself" in refused.json()["message"]) == (403, True)
    await world.call(bindings.PLATFORM_BINDING_CREATE, {"user_id": ada.user_id, "role": "platform_ops"})
    reads: list[Endpoint[Any, Any]] = [capacity.NODE_LIST, capacity.ALLOCATION_LIST, bindings.PROJECT_BINDING_LIST]
    for endpoint in reads:
        answer = await world.send(endpoint, token=ada.token)
        assert (endpoint.name, answer.status_code) == (endpoint.name, 200)
    entitle = await world.send(catalog.ENTITLEMENT_SET, {"enabled": True}, token=ada.token, app_slug="toy")
    assert entitle.status_code == 403
    grant = {"user_id": ada.user_id, "role": "platform_admin"}
    assert (await world.send(bindings.PLATFORM_BINDING_CREATE, grant, token=ada.token)).status_code == 403


async def test_a_binding_is_found_only_where_it_was_made(world: World) -> None:
    org_id, ada = await _org_id(world), await world.person("ada")
    made = await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": ada.user_id, "role": "viewer"})
    for endpoint in (bindings.PLATFORM_BINDING_DELETE, bindings.ORG_BINDING_DELETE):
        assert (await world.send(endpoint, binding_id=made.binding_id, org_id=org_id)).status_code == 404


async def test_pages_of_bindings_show_each_once(world: World) -> None:
    for number in range(3):
        person = await world.call(users.USER_CREATE, {"name": f"p{number}"})
        await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": person.user_id, "role": "viewer"})
    first = await world.call(bindings.PROJECT_BINDING_LIST, query={"page_size": 2})
    assert first.next_page_token is not None
    rest = await world.call(bindings.PROJECT_BINDING_LIST, query={"page_size": 2, "page_token": first.next_page_token})
    assert [item.user_name for item in [*first.items, *rest.items]] == ["p0", "p1", "p2"]
    assert rest.next_page_token is None


async def test_an_older_store_keeps_its_people_their_roles_and_their_sessions(
    settings: Settings, database_url: str
) -> None:
    settings.data_dir.mkdir(parents=True)
    await first_schema(
        settings.data_dir / "gpuaas.sqlite",
        database_url,
        "INSERT INTO users (user_id, name, password_hash) VALUES ('user_1', 'admin', 'x')",
        "INSERT INTO bindings (subject_id, role, scope) VALUES ('user_1', 'platform_admin', 'platform')",
        "INSERT INTO orgs (org_id, name, document) VALUES ('org_1', 'acme', '{}')",
        "INSERT INTO orgs (org_id, name, document) VALUES ('org_2', 'other', '{}')",
        "INSERT INTO tokens (digest, actor_type, actor_id, expires_at) VALUES ('d1', 'user', 'user_1', 5)",
        "INSERT INTO tokens (digest, actor_type, actor_id, expires_at) VALUES ('d2', 'user', 'user_1', 5)",
        """INSERT INTO service_accounts (service_account_id, project_id, name, state, document)
           VALUES ('sa_1', 'proj_1', 'robot', 'active', '{}')""",
    )
    async with server.open_site(settings) as site:
        reader = site.database.reader
        held = await reader.all("SELECT role, scope, binding_id FROM bindings ORDER BY scope")
        tokens = await reader.all("SELECT token_id FROM tokens")
        accounts = await reader.all("SELECT name, state FROM service_accounts")
    expected = [("tenant_admin", "org_1"), ("tenant_admin", "org_2"), ("platform_admin", "platform")]
    assert [(row[0], row[1]) for row in held] == expected
    assert len({row[2] for row in held}) == 3
    assert len({row[0] for row in tokens}) == 2
    assert [(row[0], row[1]) for row in accounts] == [("robot", "active")]


async def _org_id(world: World) -> str:
    return (await world.call(identity.ORG_LIST)).items[0].org_id
