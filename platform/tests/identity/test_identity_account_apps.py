"""Service accounts operate only the apps they are bound to, with only the permissions that these apps offer."""

import asyncio
import uuid
from typing import Any

import pytest
from gpuaas_contract import catalog, errors, events, identity, instances, policy, runtime
from gpuaas_contract.permissions import CONTROLLER_KEYS, EXECUTE, PROGRAM_KEYS
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from platform_world import MANIFEST, World
from scripted_controller import publish_version
from server_process import until

OTHER: dict[str, Any] = {**MANIFEST, "slug": "other"}


async def _account(world: World, **body: Any) -> identity.ServiceAccount:
    return await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot", **body})


async def _publish_other(world: World) -> None:
    await world.call(catalog.VERSION_REGISTER, OTHER)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version=OTHER["version"])


async def _bind(world: World, *apps: str, token: str | None = None, name: str = "controller") -> None:
    body = {"apps": list(apps)}
    await world.call(identity.SERVICE_ACCOUNT_BIND, body, token=token, service_account_id=name)


async def test_an_account_gets_what_a_controller_usually_needs_where_the_manifest_lists_nothing(world: World) -> None:
    keys = {"toy.wall.paint": {"meaning": "paint walls", "roles": ["project_member", "service_account"]}}
    await world.entitled_app(permissions=keys)
    account = await _account(world, apps=["toy"])
    assert account.apps == ["toy"]
    assert set(account.permissions) == CONTROLLER_KEYS | {"toy.wall.paint"}


async def test_an_account_gets_exactly_the_permissions_that_the_manifests_list(world: World) -> None:
    await world.entitled_app(controller={"permissions": [EXECUTE, "apps.instance.read"]})
    assert set((await _account(world, apps=["toy"])).permissions) == {EXECUTE, "apps.instance.read"}
    await publish_version(world, "1.1.0", controller={"permissions": [EXECUTE, "apps.member.operate"]})
    both = await _account(world, name="both", apps=["toy"])
    assert set(both.permissions) == {EXECUTE, "apps.instance.read", "apps.member.operate"}


async def test_registered_and_withdrawn_versions_widen_no_account(world: World) -> None:
    await world.entitled_app(controller={"permissions": [EXECUTE]})
    await publish_version(world, "1.1.0", controller={"permissions": [EXECUTE, "apps.instance.read"]})
    await world.call(catalog.VERSION_DEPRECATE, {"reason": "old"}, app_slug="toy", version="1.1.0")
    for version in ("9.0.0", "9.1.0"):
        wide = {"permissions": [EXECUTE, "apps.instance.decommission"]}
        await world.call(catalog.VERSION_REGISTER, {**MANIFEST, "version": version, "controller": wide})
    await world.call(catalog.VERSION_WITHDRAW, {"reason": "too wide"}, app_slug="toy", version="9.1.0")
    assert set((await _account(world, apps=["toy"])).permissions) == {EXECUTE, "apps.instance.read"}
    with pytest.raises(errors.ValidationFailed, match=r"apps\.instance\.decommission"):
        await _account(world, name="more", apps=["toy"], permissions=["apps.instance.decommission"])
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="9.0.0")
    assert (
        "apps.instance.decommission"
        not in (await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")).permissions
    ), "an account changes only when people bind it again"
    await _bind(world, "toy", name="robot")
    bound = await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")
    assert set(bound.permissions) == {EXECUTE, "apps.instance.read", "apps.instance.decommission"}


async def test_a_part_of_the_offered_permissions_can_be_given_and_nothing_else(world: World) -> None:
    await world.entitled_app()
    assert (await _account(world, apps=["toy"], permissions=[EXECUTE])).permissions == [EXECUTE]
    with pytest.raises(errors.ValidationFailed, match=r"apps\.instance\.decommission"):
        await _account(world, name="more", apps=["toy"], permissions=[EXECUTE, "apps.instance.decommission"])


async def test_an_account_without_an_app_is_a_program_of_the_project_and_claims_nothing(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account("program", apps=[])
    shown = await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="program")
    assert (shown.apps, set(shown.permissions)) == ([], set(PROGRAM_KEYS))
    with pytest.raises(errors.PermissionDenied):
        await world.claim(token)
    assert (await world.call(instances.INSTANCE_LIST, token=token)).items == []
    with pytest.raises(errors.ValidationFailed, match="without an app"):
        await _account(world, permissions=[EXECUTE])


async def test_an_app_that_is_not_registered_is_refused(world: World) -> None:
    with pytest.raises(errors.AppUnknown):
        await _account(world, apps=["ghost"])


async def test_an_app_without_a_published_version_gets_no_account(world: World) -> None:
    await world.entitled_app()
    for version in ("1.0.0", "1.10.0", "1.9.0"):
        await world.call(catalog.VERSION_REGISTER, {**OTHER, "version": version})
    with pytest.raises(errors.Conflict, match="No version of other is published") as refused:
        await _account(world, apps=["toy", "other"])
    assert refused.value.fix == "gpuaas app publish other 1.10.0"
    await _account(world, apps=["toy"])
    with pytest.raises(errors.Conflict, match="No version of other is published"):
        await _bind(world, "other", name="robot")
    assert (await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")).apps == ["toy"]
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version="1.10.0")
    await _bind(world, "toy", "other", name="robot")
    assert (await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")).permissions


async def test_tenants_do_not_see_a_version_before_it_is_published_and_keep_the_account_of_a_withdrawn_app(
    world: World,
) -> None:
    await world.entitled_app()
    await _publish_other(world)
    await _account(world, apps=["other"])
    await world.call(catalog.VERSION_WITHDRAW, {"reason": "old"}, app_slug="other", version=OTHER["version"])
    await world.call(catalog.VERSION_REGISTER, {**OTHER, "version": "2.0.0-secret"})
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    tess = (await world.person("tess", "tenant_admin", org_id)).token
    with pytest.raises(errors.Conflict, match="No version of other is published") as refused:
        await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "more", "apps": ["other"]}, token=tess)
    assert refused.value.fix == "gpuaas app publish other VERSION"
    await _bind(world, "other", "toy", token=tess, name="robot")
    assert (await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="robot")).apps == ["other", "toy"]


async def test_a_permission_that_was_not_given_is_denied_and_can_i_explains_it(world: World) -> None:
    await world.entitled_app()
    await _account(world, name="reader", apps=["toy"], permissions=[EXECUTE])
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id="reader")
    login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
    token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
    with pytest.raises(errors.PermissionDenied, match=r"apps\.instance\.read"):
        await world.call(instances.INSTANCE_LIST, token=token)
    asked = {"permission": "apps.instance.read", "project_id": world.project_id}
    answer = await world.call(policy.CAN_I, asked, token=token)
    assert (answer.allowed, "was not given" in answer.explanation) == (False, True)


async def test_only_a_tenant_admin_binds_an_account(world: World) -> None:
    await world.entitled_app()
    await world.service_account()
    for role, scope in (("project_admin", world.project_id), ("platform_admin", "platform")):
        person = await world.person(role.replace("_", "-"), role, scope)
        with pytest.raises(errors.PermissionDenied):
            await _bind(world, token=person.token)
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    await _bind(world, token=(await world.person("tenant", "tenant_admin", org_id)).token)


async def test_binding_counts_from_the_next_request_and_is_an_event(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.deploy()
    claim = await world.claim(token)
    await _bind(world)
    with pytest.raises(errors.PermissionDenied):
        await world.report(token, claim, claim.members[0].member_id, "provisioning")
    (bound,) = [
        event.payload
        for event in (await world.call(events.EVENT_LIST, query={"limit": 500})).items
        if event.type == "identity.service_account.bound"
    ]
    assert (bound["name"], bound["was"], bound["apps"], bound["reason"]) == ("controller", ["toy"], [], "")
    await _bind(world, "toy")
    await world.report(token, claim, claim.members[0].member_id, "provisioning")
    assert deployed.operation.operation_id == (claim.operation and claim.operation.operation_id)


async def test_a_claim_that_waits_while_the_account_is_bound_to_another_app_gets_nothing(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    body = runtime.ClaimOperation(app_slug="toy", holder="old", claim_id=str(uuid.uuid4()), lease_s=15, wait_s=30)
    waiting = asyncio.create_task(world.send(runtime.CLAIM, body, token=token))
    await until(lambda: world.site.hub.waiting == 1)
    await _publish_other(world)
    await _bind(world, "other")
    deployed = await world.deploy()
    assert (await waiting).status_code == 403
    assert (await world.operation(deployed.operation.operation_id)).epoch == 0


async def test_machine_access_ends_when_the_account_no_longer_operates_the_app(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    await world.deploy()
    claim = await world.claim(token, lease_s=60)
    assert claim.operation is not None
    about = {"operation_id": claim.operation.operation_id, "epoch": claim.epoch}
    granted = await world.machine_access(token, claim.members[0].allocation_id, **about)
    await grants_reconcile.sweep(world.site)
    assert await _grant_state(world, granted.grant_id) == "active"
    await _publish_other(world)
    await _bind(world, "other")
    await grants_reconcile.sweep(world.site)
    assert await _grant_state(world, granted.grant_id) != "active"


async def _grant_state(world: World, grant_id: str) -> str:
    rows = await world.site.database.reader.all("SELECT state FROM machine_grants WHERE grant_id = $1", grant_id)
    return str(rows[0][0])


async def test_an_operator_must_operate_the_app(world: World) -> None:
    await world.entitled_app()
    await world.service_account("program", apps=[])
    deployed = await world.deploy()
    body = {"operator_service_account_id": "program", "reason": "test"}
    where = {"instance_id": deployed.instance.instance_id}
    with pytest.raises(errors.ValidationFailed, match="program does not operate toy"):
        await world.call(instances.OPERATOR_SET, body, **where)


async def test_a_program_that_deploys_an_app_does_not_become_its_operator(world: World) -> None:
    await world.entitled_app()
    controller, program = await world.service_account(), await world.service_account("program", apps=[])
    own, world.token = world.token, program
    head, hand = [(await _machine(world, own, name)) for name in ("m-1", "m-2")]
    inputs = {"head_allocation": head, "hand_allocations": [hand]}
    body = instances.DeployInstance(name="one", app_slug="toy", topology="pair", inputs=inputs)
    deployed = await world.call(instances.INSTANCE_CREATE, body)
    assert deployed.instance.operator_service_account_id == ""
    assert (await world.claim(controller)).operation is not None


async def _machine(world: World, admin: str, name: str) -> str:
    mine, world.token = world.token, admin
    try:
        return (await world.allocation(name)).allocation_id
    finally:
        world.token = mine
