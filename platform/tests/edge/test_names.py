"""A path or a body takes the name people use wherever it takes an id."""

from collections.abc import Sequence
from typing import Any

import pytest
from gpuaas_contract import (
    audit,
    bindings,
    capacity,
    credentials,
    errors,
    holds,
    identity,
    instances,
    policy,
    ssh_keys,
    users,
)
from gpuaas_platform.kit import db
from platform_world import World, ssh_private_key
from scripted_controller import Cluster


@pytest.fixture
async def running(world: World) -> instances.Instance:
    """An instance that runs: `one-head` carries its head, `one-hand-0` and `one-hand-1` its hands."""
    return await (await Cluster.running(world)).instance()


async def test_a_path_takes_the_name_of_its_project(world: World) -> None:
    allocation = await world.allocation("gpu-1")
    listed = await world.call(capacity.ALLOCATION_LIST, project_id="research")
    assert [item.allocation_id for item in listed.items] == [allocation.allocation_id]


async def test_a_name_that_two_visible_projects_have_is_refused_with_the_candidates(world: World) -> None:
    org = await world.call(identity.ORG_CREATE, {"name": "other"})
    second = await world.call(identity.PROJECT_CREATE, {"name": "research"}, org_id="other")
    assert second.org_id == org.org_id
    with pytest.raises(errors.NameAmbiguous) as refused:
        await world.call(capacity.ALLOCATION_LIST, project_id="research")
    assert sorted(refused.value.details["candidates"]) == sorted([world.project_id, second.project_id])
    assert all(candidate in refused.value.fix for candidate in refused.value.details["candidates"])


async def test_a_project_that_the_caller_cannot_see_has_no_name_for_them(world: World) -> None:
    await world.call(identity.ORG_CREATE, {"name": "other"})
    hidden = await world.call(identity.PROJECT_CREATE, {"name": "research"}, org_id="other")
    member = await world.person("ada", "project_admin", world.project_id)
    seen = await world.call(capacity.ALLOCATION_LIST, project_id="research", token=member.token)
    assert seen.items == []
    stranger = await world.person("eve")
    by_id = await world.send(capacity.ALLOCATION_LIST, project_id=hidden.project_id, token=stranger.token)
    by_name = await world.send(capacity.ALLOCATION_LIST, project_id="research", token=stranger.token)
    assert (by_id.status_code, by_id.json()["message"]) == (by_name.status_code, by_name.json()["message"])


async def test_the_list_of_projects_can_be_asked_for_one_by_name_or_id(world: World) -> None:
    await world.call(identity.PROJECT_CREATE, {"name": "second"}, org_id="acme")
    for word in ("research", world.project_id):
        page = await world.call(identity.PROJECT_LIST, query={"name": word})
        assert [project.project_id for project in page.items] == [world.project_id]


async def test_a_change_under_an_organisation_by_name_is_audited_in_its_chain(world: World) -> None:
    ada = await world.person("ada")
    body = bindings.BindRole(user_id="ada", role="tenant_admin")
    bound = await world.call(bindings.ORG_BINDING_CREATE, body, org_id="acme")
    assert bound.user_id == ada.user_id
    rows = (await world.call(audit.ORG_AUDIT_LIST, org_id="acme")).items
    assert rows[-1].action == "identity.org_binding.create"


async def test_a_question_about_a_right_takes_names(world: World) -> None:
    for asked in ({"project_id": "research"}, {"org_id": "acme"}):
        answer = await world.call(policy.CAN_I, {"permission": "identity.project.create", **asked})
        assert answer.decided_by


@pytest.mark.parametrize("endpoint", [users.USER_GET, users.USER_DISABLE, users.USER_ENABLE])
async def test_a_person_is_found_by_name(world: World, endpoint: Any) -> None:
    ada = await world.person("ada")
    assert (await world.call(endpoint, user_id="ada")).user_id == ada.user_id


async def test_names_of_people_mean_nothing_to_those_who_may_not_look_people_up(world: World) -> None:
    await world.person("ada")
    admin = await world.person("grace", "project_admin", world.project_id)
    body = bindings.BindRole(user_id="ada", role="project_member")
    with pytest.raises(errors.ValidationFailed):
        await world.call(bindings.PROJECT_BINDING_CREATE, body, token=admin.token)


async def test_a_service_account_is_found_by_name_until_it_is_deleted(world: World) -> None:
    made = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"})
    disabled = await world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id="robot")
    assert disabled.service_account_id == made.service_account_id
    await world.call(identity.SERVICE_ACCOUNT_DELETE, service_account_id="robot")
    with pytest.raises(errors.NotFound):
        await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")


async def test_the_operator_of_an_instance_is_set_by_name_and_stored_by_id(
    world: World, running: instances.Instance
) -> None:
    made = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot", "apps": ["toy"]})
    body = instances.SetOperator(operator_service_account_id="robot", reason="a test")
    changed = await world.call(instances.OPERATOR_SET, body, instance_id=running.name)
    assert changed.operator_service_account_id == made.service_account_id


async def test_a_credential_by_name_is_the_active_one(world: World) -> None:
    body = credentials.CreateCredential(name="rack", private_key=ssh_private_key())
    old = await world.call(credentials.CREDENTIAL_CREATE, body)
    reason = credentials.RevokeCredential(reason="it leaked")
    await world.call(credentials.CREDENTIAL_REVOKE, reason, credential_id="rack")
    assert (await world.call(credentials.CREDENTIAL_GET, credential_id="rack")).credential_id == old.credential_id
    new = await world.call(credentials.CREDENTIAL_CREATE, {"name": "rack", "private_key": ssh_private_key()})
    assert (await world.call(credentials.CREDENTIAL_GET, credential_id="rack")).credential_id == new.credential_id
    rotated = await world.call(credentials.CREDENTIAL_ROTATE, {"private_key": ssh_private_key()}, credential_id="rack")
    assert (rotated.credential_id, rotated.version) == (new.credential_id, 2)


async def test_several_revoked_credentials_of_one_name_are_ambiguous(world: World) -> None:
    made = []
    for _ in range(2):
        made.append(await world.call(credentials.CREDENTIAL_CREATE, {"name": "rack", "private_key": ssh_private_key()}))
        await world.call(credentials.CREDENTIAL_REVOKE, {"reason": "it leaked"}, credential_id="rack")
    with pytest.raises(errors.NameAmbiguous) as refused:
        await world.call(credentials.CREDENTIAL_GET, credential_id="rack")
    assert refused.value.details["candidates"] == [credential.credential_id for credential in made]


async def test_a_node_is_found_by_the_name_it_has_now(world: World) -> None:
    first = await world.node("gpu-1")
    await world.call(capacity.NODE_CORDON, {"reason": "fan"}, node_id="gpu-1")
    drained = await world.call(capacity.NODE_DRAIN, {"reason": "fan"}, node_id="gpu-1")
    assert drained.node.node_id == first.node_id
    await world.call(capacity.NODE_RETIRE, {"reason": "sold"}, node_id="gpu-1")
    with pytest.raises(errors.NotFound):
        await world.call(capacity.NODE_GET, node_id="gpu-1")
    second = await world.node("gpu-1")
    assert (await world.call(capacity.NODE_GET, node_id="gpu-1")).node_id == second.node_id


async def test_the_audit_trail_names_a_node_by_its_id(world: World) -> None:
    node = await world.node("gpu-1")
    await world.call(capacity.NODE_CORDON, {"reason": "fan"}, node_id="gpu-1")
    rows = (await world.call(audit.PLATFORM_AUDIT_LIST, query={"action": "capacity.node.cordon"})).items
    assert [row.target for row in rows] == [node.node_id]


async def test_an_allocation_is_found_by_the_node_it_holds(world: World) -> None:
    allocation = await world.allocation("gpu-1")
    keys = await world.call(ssh_keys.ALLOCATION_KEYS_SET, {"user_ids": ["admin"]}, allocation_id="gpu-1")
    assert (keys.allocation_id, [person.name for person in keys.people]) == (allocation.allocation_id, ["admin"])
    released = await world.call(capacity.ALLOCATION_RELEASE, allocation_id="gpu-1")
    assert released.allocation_id == allocation.allocation_id


async def test_the_node_of_another_projects_allocation_is_no_name_here(world: World) -> None:
    await world.allocation("gpu-1")
    await world.call(identity.PROJECT_CREATE, {"name": "second"}, org_id="acme")
    elsewhere = await world.send(capacity.ALLOCATION_GET, allocation_id="gpu-1", project_id="second")
    nowhere = await world.send(capacity.ALLOCATION_GET, allocation_id="gpu-9", project_id="second")
    assert elsewhere.status_code == nowhere.status_code == 404


async def test_a_machine_is_entered_by_the_name_of_its_node(world: World) -> None:
    allocation = await world.allocation("gpu-1")
    assert (await world.machine_access(world.token, "gpu-1")).principal == allocation.allocation_id


@pytest.mark.parametrize("named", ["one-hand-0", "one-hand-0/hand", "one-hand-0%2Fhand"])
async def test_a_member_is_found_by_its_node_and_role(world: World, running: instances.Instance, named: str) -> None:
    path = named.replace("/", "%2F")
    member = await world.call(instances.MEMBER_GET, instance_id="one", member_id=path)
    assert (member.node_name, member.component_key) == ("one-hand-0", "hand")


@pytest.mark.parametrize("named", ["one-hand-0%2Fhead", "one-hand-7", "hand"])
async def test_a_member_that_is_not_there_is_not_found(world: World, running: instances.Instance, named: str) -> None:
    with pytest.raises(errors.NotFound):
        await world.call(instances.MEMBER_GET, instance_id="one", member_id=named)


async def test_a_hold_is_placed_by_node_and_lifted_by_name(world: World, running: instances.Instance) -> None:
    body = holds.PlaceHold(name="fan", kind="no_work", reason="technician", ttl_s=600)
    placed = await world.call(holds.HOLD_PLACE, body, instance_id="one", member_id="one-hand-0%2Fhand")
    lifted = await world.call(holds.HOLD_LIFT, instance_id="one", hold_id="fan")
    assert (lifted.hold_id, lifted.lifted_at is not None) == (placed.hold_id, True)


@pytest.mark.parametrize("named", ["one-hand-0", "one-hand-0/hand"])
async def test_a_member_operation_names_members_by_node(world: World, running: instances.Instance, named: str) -> None:
    member = await world.call(instances.MEMBER_GET, instance_id="one", member_id="one-hand-0")
    body = instances.MemberOperationRequest(kind="drain", member_ids=[named])
    operation = await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id="one")
    assert [target.member_id for target in operation.targets] == [member.member_id]


async def test_a_member_operation_names_allocations_by_node(world: World, running: instances.Instance) -> None:
    allocation = await world.allocation("gpu-9")
    body = instances.MemberOperationRequest(kind="add", component_key="hand", allocation_ids=["gpu-9"])
    operation = await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id="one")
    added = await world.call(instances.MEMBER_GET, instance_id="one", member_id=operation.targets[0].member_id)
    assert added.allocation_id == allocation.allocation_id


@pytest.mark.parametrize(
    ("kind", "field", "named"), [("drain", "member_ids", "gpu-9"), ("add", "allocation_ids", "gpu-9")]
)
async def test_an_unknown_name_in_a_member_operation_is_not_found(
    world: World, running: instances.Instance, kind: Any, field: str, named: str
) -> None:
    body = {"kind": kind, "component_key": "hand", field: [named]}
    with pytest.raises(errors.NotFound):
        await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id="one")


async def test_a_deploy_names_allocations_by_node_and_keeps_their_ids(world: World) -> None:
    await world.entitled_app()
    head, hand = await world.allocation("gpu-1"), await world.allocation("gpu-2")
    body = instances.DeployInstance(
        name="one",
        app_slug="toy",
        topology="pair",
        inputs={"head_allocation": "gpu-1", "hand_allocations": ["gpu-2"], "color": "red"},
    )
    deployed = await world.call(instances.INSTANCE_CREATE, body)
    assert deployed.instance.placement == {"head": [head.allocation_id], "hand": [hand.allocation_id]}
    assert deployed.instance.inputs == {
        "head_allocation": head.allocation_id,
        "hand_allocations": [hand.allocation_id],
        "color": "red",
    }


class Recorder:
    """A reader that stores every query."""

    def __init__(self, reader: db.Reader) -> None:
        self._reader = reader
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        self.asked.append((sql, values))
        return await self._reader.one(sql, *values)

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        self.asked.append((sql, values))
        return await self._reader.all(sql, *values)


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        (capacity.NODE_GET, {"node_id": "one-head"}),
        (capacity.ALLOCATION_GET, {"allocation_id": "one-head", "project_id": "research"}),
        (instances.MEMBER_GET, {"instance_id": "one", "member_id": "one-head%2Fhead"}),
        (users.USER_GET, {"user_id": "admin"}),
        (credentials.CREDENTIAL_GET, {"credential_id": "rack"}),
        (identity.SERVICE_ACCOUNT_GET, {"service_account_id": "controller"}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
async def test_a_name_costs_a_look_into_an_index(
    world: World, running: instances.Instance, monkeypatch: pytest.MonkeyPatch, endpoint: Any, path: dict[str, str]
) -> None:
    if world.site.settings.database_url:
        pytest.skip("PostgreSQL scans tables of one page, with or without an index")
    await world.call(credentials.CREDENTIAL_CREATE, {"name": "rack", "private_key": ssh_private_key()})
    recorder = Recorder(world.site.database.reader)
    with monkeypatch.context() as patch:
        patch.setattr(world.site.database, "reader", recorder)
        await world.call(endpoint, **path)
    assert recorder.asked
    plans = [
        row["detail"]
        for sql, values in recorder.asked
        for row in await world.site.database.reader.all(f"EXPLAIN QUERY PLAN {sql}", *values)
    ]
    assert [plan for plan in plans if plan.startswith("SCAN") and "CONSTANT" not in plan] == []
