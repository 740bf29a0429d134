"""Break-glass access to a project: it needs a reason, the project sees it, and it expires or is ended early."""

from typing import Any

import pytest
from gpuaas_contract import actions, audit, bindings, capacity, errors, events, identity, policy, registry, users
from platform_world import Person, World
from scripted_controller import Cluster

REASON = "ticket 4711: the head node hangs and no project admin answers"


@pytest.fixture
async def admin(world: World) -> Person:
    """A platform admin who did not create the organisation."""
    return await world.person("operator-in-chief", "platform_admin", "platform")


async def _break(world: World, admin: Person, **changes: Any) -> bindings.RoleBinding:
    body = {"project_id": world.project_id, "reason": REASON, "minutes": 15, **changes}
    return await world.call(bindings.BREAK_GLASS_CREATE, body, token=admin.token, headers={"X-Correlation-ID": "bg-1"})


async def _status(world: World, admin: Person) -> int:
    return (await world.send(capacity.ALLOCATION_LIST, token=admin.token)).status_code


async def test_break_glass_opens_one_project_and_expires(world: World, admin: Person) -> None:
    assert await _status(world, admin) == 403
    given = await _break(world, admin)
    assert (given.role, given.scope, given.reason) == ("break_glass", world.project_id, REASON)
    assert given.expires_at is not None
    assert (given.expires_at - world.clock()).total_seconds() == 15 * 60
    assert await _status(world, admin) == 200
    world.clock.forward(15 * 60 - 1)
    assert await _status(world, admin) == 200
    world.clock.forward(1)
    assert await _status(world, admin) == 403
    me = await world.call(identity.ME, token=admin.token)
    assert [binding.role for binding in me.bindings] == ["platform_admin"]


async def test_other_projects_of_the_organisation_stay_closed(world: World, admin: Person) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org.org_id)
    await _break(world, admin)
    answer = await world.send(capacity.ALLOCATION_LIST, token=admin.token, project_id=sibling.project_id)
    assert answer.status_code == 403


async def test_the_organisation_finds_the_reason_on_its_audit_trail(world: World, admin: Person) -> None:
    given = await _break(world, admin)
    org = (await world.call(identity.ORG_LIST)).items[0]
    trail = registry.BY_NAME["record.org_audit"]
    rows = (await world.call(trail, query={"correlation_id": "bg-1"}, org_id=org.org_id)).items
    [row] = [row for row in rows if row.action == "identity.break_glass.granted"]
    assert (row.actor_id, row.target, row.project_id) == (admin.user_id, given.binding_id, world.project_id)
    assert row.details["reason"] == REASON


async def test_break_glass_is_an_event_of_the_project(world: World, admin: Person) -> None:
    await _break(world, admin)
    listed = (await world.call(events.EVENT_LIST, query={"correlation_id": "bg-1"})).items
    assert [event.type for event in listed] == ["identity.break_glass.granted"]
    assert listed[0].payload["reason"] == REASON


async def _end(world: World, person: Person, binding_id: str) -> bindings.RoleBinding:
    headers = {"X-Correlation-ID": "bg-2"}
    return await world.call(bindings.BREAK_GLASS_END, token=person.token, binding_id=binding_id, headers=headers)


async def test_the_admin_who_took_break_glass_can_end_it_early(world: World, admin: Person) -> None:
    given = await _break(world, admin)
    assert await _end(world, admin, given.binding_id) == given
    assert await _status(world, admin) == 403
    assert (await world.call(bindings.PROJECT_BINDING_LIST)).items == []
    with pytest.raises(errors.NotFound, match="ended already"):
        await _end(world, admin, given.binding_id)


async def test_the_end_of_break_glass_is_an_event_and_an_audit_row_of_the_project(world: World, admin: Person) -> None:
    given = await _break(world, admin)
    await _end(world, admin, given.binding_id)
    [event] = (await world.call(events.EVENT_LIST, query={"correlation_id": "bg-2"})).items
    assert event.type == "identity.break_glass.ended"
    assert event.payload == {"binding_id": given.binding_id, "user_id": admin.user_id, "ended_by": admin.user_id}
    [row] = (await world.call(audit.AUDIT_LIST, query={"correlation_id": "bg-2"})).items
    assert (row.action, row.target, row.actor_id) == ("identity.break_glass.ended", given.binding_id, admin.user_id)
    assert row.details == {"reason": REASON, "user_id": admin.user_id}


async def test_another_platform_admin_can_end_break_glass_and_lower_roles_cannot(world: World, admin: Person) -> None:
    given = await _break(world, admin)
    org = (await world.call(identity.ORG_LIST)).items[0]
    for name, role, scope, status in (
        ("ops", "platform_ops", "platform", 403),
        ("tenant", "tenant_admin", org.org_id, 404),
    ):
        person = await world.person(name, role, scope)
        answer = await world.send(bindings.BREAK_GLASS_END, token=person.token, binding_id=given.binding_id)
        assert answer.status_code == status
    colleague = await world.person("colleague", "platform_admin", "platform")
    await _end(world, colleague, given.binding_id)
    [event] = (await world.call(events.EVENT_LIST, query={"correlation_id": "bg-2"})).items
    assert (event.payload["user_id"], event.payload["ended_by"]) == (admin.user_id, colleague.user_id)


async def test_ending_break_glass_removes_no_other_role(world: World, admin: Person) -> None:
    body = {"user_id": admin.user_id, "role": "viewer"}
    lasting = await world.call(bindings.PROJECT_BINDING_CREATE, body)
    with pytest.raises(errors.NotFound):
        await _end(world, admin, lasting.binding_id)


async def test_the_tenant_sees_break_glass_and_can_end_it(world: World, admin: Person) -> None:
    await _break(world, admin)
    [shown] = (await world.call(bindings.PROJECT_BINDING_LIST)).items
    assert (shown.role, shown.user_name, shown.reason) == ("break_glass", admin.name, REASON)
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=shown.binding_id)
    assert await _status(world, admin) == 403
    listed = (await world.call(events.EVENT_LIST)).items
    assert [event.type for event in listed] == ["identity.break_glass.granted", "identity.break_glass.ended"]


async def test_break_glass_cannot_be_turned_into_lasting_access(world: World, admin: Person) -> None:
    await _break(world, admin)
    for role in ("viewer", "project_member", "project_admin"):
        body = {"user_id": admin.user_id, "role": role}
        assert (await world.send(bindings.PROJECT_BINDING_CREATE, body, token=admin.token)).status_code == 403
    robot = await world.send(identity.SERVICE_ACCOUNT_CREATE, {"name": "backdoor"}, token=admin.token)
    assert robot.status_code == 403


async def test_taking_break_glass_again_renews_it_and_leaves_one_binding(world: World, admin: Person) -> None:
    first = await _break(world, admin, minutes=1)
    again = await _break(world, admin, minutes=60)
    assert first.binding_id != again.binding_id
    assert len((await world.call(bindings.PROJECT_BINDING_LIST)).items) == 1
    world.clock.forward(3599)
    assert await _status(world, admin) == 200


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"reason": "too short"}, "reason"),
        ({"reason": " " * 20}, "reason"),
        ({"minutes": 61}, "minutes"),
        ({"minutes": 0}, "minutes"),
    ],
)
async def test_a_reason_and_an_end_are_mandatory(world: World, changes: dict[str, Any], field: str) -> None:
    body = {"project_id": world.project_id, "reason": REASON, "minutes": 15, **changes}
    answer = await world.send(bindings.BREAK_GLASS_CREATE, body)
    assert (answer.status_code, answer.json()["details"]["field"]) == (400, field)


async def test_break_glass_is_for_platform_admins_only(world: World) -> None:
    org = (await world.call(identity.ORG_LIST)).items[0]
    body = {"project_id": world.project_id, "reason": REASON}
    for name, role, scope, status in (
        ("ops", "platform_ops", "platform", 403),
        ("tenant", "tenant_admin", org.org_id, 404),
    ):
        person = await world.person(name, role, scope)
        assert (await world.send(bindings.BREAK_GLASS_CREATE, body, token=person.token)).status_code == status


async def test_an_unknown_project_is_not_found(world: World) -> None:
    body = {"project_id": "proj_absent", "reason": REASON}
    assert (await world.send(bindings.BREAK_GLASS_CREATE, body)).status_code == 404


OF_PEOPLE = {"viewer": "look", "project_member": "flush", "project_admin": "open"}
OF_OTHERS = {"tenant_admin": "close", "service_account": "count"}
"""Role that an app gives an action's permission to -> the action."""


def _shop() -> dict[str, Any]:
    given = OF_PEOPLE | OF_OTHERS
    return {
        "permissions": {f"shop.till.{name}": {"meaning": name, "roles": [role]} for role, name in given.items()},
        "actions": [
            {"name": name, "title": name, "permission": f"shop.till.{name}", "input_schema": {"type": "object"}}
            for name in given.values()
        ],
    }


async def _invoked(world: World, cluster: Cluster, admin: Person, action: str) -> int:
    answer = await world.send(
        actions.ACTION_INVOKE, {}, token=admin.token, instance_id=cluster.instance_id, action=action
    )
    return answer.status_code


async def test_break_glass_includes_what_an_app_gives_to_project_admins_until_it_expires(
    world: World, admin: Person
) -> None:
    cluster = await Cluster.running(world, hands=1, **_shop())
    for action in OF_PEOPLE.values():
        assert await _invoked(world, cluster, admin, action) == 403
    await _break(world, admin)
    for action in OF_PEOPLE.values():
        assert await _invoked(world, cluster, admin, action) == 202
    for action in OF_OTHERS.values():
        assert await _invoked(world, cluster, admin, action) == 403
    asked = {"permission": "shop.till.flush", "project_id": world.project_id}
    answer = await world.call(policy.CAN_I, asked, token=admin.token)
    assert answer.decided_by == policy.DecidedByBinding(role="break_glass", scope=world.project_id)
    world.clock.forward(15 * 60)
    assert await _invoked(world, cluster, admin, "flush") == 403


async def test_everything_done_with_break_glass_is_on_the_audit_trail_with_the_reason(
    world: World, admin: Person
) -> None:
    cluster = await Cluster.running(world, hands=1, **_shop())
    await world.send(capacity.ALLOCATION_CREATE, {}, token=admin.token)
    await _break(world, admin)
    await _invoked(world, cluster, admin, "flush")
    await _invoked(world, cluster, admin, "count")
    await cluster.operate("drain", (await cluster.hands())[0], token=admin.token)
    trail = (await world.call(audit.AUDIT_LIST, query={"actor_id": admin.user_id})).items
    rows = [(row.action, row.result, row.details.get("break_glass")) for row in trail]
    assert rows == [
        ("authz.deny", "failure", None),
        ("identity.break_glass.granted", "success", None),
        ("apps.action.invoke", "success", REASON),
        ("authz.deny", "failure", REASON),
        ("apps.member.operate", "success", REASON),
    ]


async def test_actors_with_permanent_roles_are_audited_without_a_reason(world: World) -> None:
    cluster = await Cluster.running(world, hands=1, **_shop())
    await cluster.operate("drain", (await cluster.hands())[0])
    trail = (await world.call(audit.AUDIT_LIST, query={"action": "apps.member.operate"})).items
    assert [row.details.get("break_glass") for row in trail] == [None]


async def test_losing_the_session_ends_the_access_too(world: World, admin: Person) -> None:
    await _break(world, admin)
    await world.call(users.USER_DISABLE, user_id=admin.user_id)
    assert await _status(world, admin) == 401
