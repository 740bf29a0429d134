"""A service account of an organisation operates one app, only in the projects that accept it and entitle the app."""

import uuid
from typing import Any

import pytest
from gpuaas_contract import (
    access,
    audit,
    catalog,
    controllers,
    errors,
    events,
    identity,
    instances,
    operations,
    org_accounts,
    runtime,
    stewardships,
)
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.permissions import BREAK_GLASS, CONTROLLER_KEYS, EXECUTE, ROLES
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from platform_world import MANIFEST, OrgAccount, World
from scripted_controller import CLUSTERED, Held, publish_version

OTHER: dict[str, Any] = {**MANIFEST, "slug": "other", "permissions": {}, "actions": []}


async def _org_id(world: World) -> str:
    return (await world.call(identity.ORG_LIST)).items[0].org_id


async def _project(world: World, name: str, *, entitled: bool = True) -> str:
    project = await world.call(identity.PROJECT_CREATE, {"name": name}, org_id=await _org_id(world))
    await _entitle(world, project.project_id, enabled=entitled)
    return project.project_id


async def _entitle(world: World, project_id: str, *, enabled: bool = True, app_slug: str = "toy") -> None:
    await world.call(catalog.ENTITLEMENT_SET, {"enabled": enabled}, app_slug=app_slug, project_id=project_id)


async def _accept(world: World, account: OrgAccount, project_id: str, token: str | None = None) -> None:
    where = {"project_id": project_id, "service_account_id": account.service_account_id}
    await world.call(org_accounts.ACCEPT, token=token, **where)


async def _dismiss(world: World, account: OrgAccount, project_id: str) -> None:
    where = {"project_id": project_id, "service_account_id": account.service_account_id}
    await world.call(org_accounts.DISMISS, **where)


async def _claim(world: World, token: str, project_id: str, app_slug: str = "toy") -> runtime.Claim:
    body = {"app_slug": app_slug, "holder": "fleet", "claim_id": uuid.uuid4().hex, "lease_s": 60}
    return await world.call(runtime.CLAIM, body, token=token, project_id=project_id)


async def test_an_account_of_the_organisation_gets_exactly_the_permissions_of_its_app(world: World) -> None:
    await world.entitled_app(controller={"permissions": [EXECUTE, "apps.instance.read"]})
    fleet = await world.org_account()
    shown = await world.call(org_accounts.GET, org_id=fleet.org_id, service_account_id="fleet")
    assert (shown.project_id, shown.apps) == ("", ["toy"])
    assert set(shown.permissions) == {EXECUTE, "apps.instance.read"}
    await publish_version(world, "1.1.0", controller={"permissions": [EXECUTE, "apps.operation.read"]})
    bound = await world.call(
        org_accounts.BIND, {"apps": ["toy"]}, org_id=fleet.org_id, service_account_id=fleet.service_account_id
    )
    assert set(bound.permissions) == {EXECUTE, "apps.instance.read", "apps.operation.read"}
    assert (await world.call(org_accounts.LIST, org_id=fleet.org_id)).items == [bound]
    assert (await world.call(identity.SERVICE_ACCOUNT_LIST)).items == [], "no project owns it"


async def test_it_has_exactly_one_app_which_never_changes(world: World) -> None:
    await world.entitled_app()
    await world.call(catalog.VERSION_REGISTER, OTHER)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version=OTHER["version"])
    org_id = await _org_id(world)
    for apps in ([], ["toy", "other"]):
        with pytest.raises(errors.ValidationFailed, match="exactly one app"):
            await world.call(org_accounts.CREATE, {"name": "fleet", "apps": apps}, org_id=org_id)
    fleet = await world.org_account()
    with pytest.raises(errors.ValidationFailed, match="never changes"):
        await world.call(
            org_accounts.BIND, {"apps": ["other"]}, org_id=org_id, service_account_id=fleet.service_account_id
        )
    more = {"name": "more", "apps": ["toy"], "permissions": ["apps.instance.decommission"]}
    with pytest.raises(errors.ValidationFailed, match=r"apps\.instance\.decommission"):
        await world.call(org_accounts.CREATE, more, org_id=org_id)


async def test_before_a_project_accepts_it_every_project_looks_absent(world: World) -> None:
    await world.entitled_app()
    await world.deploy()
    fleet = await world.org_account()
    absent = "proj_" + "0" * 26
    for project_id in (world.project_id, absent):
        hidden: tuple[AnyEndpoint, ...] = (instances.INSTANCE_LIST, operations.OPERATION_LIST, identity.PROJECT_GET)
        for endpoint in hidden:
            with pytest.raises(errors.NotFound):
                await world.call(endpoint, token=fleet.token, project_id=project_id)
        with pytest.raises(errors.NotFound):
            await _claim(world, fleet.token, project_id)
    assert (await world.call(identity.PROJECT_LIST, token=fleet.token)).items == []
    assert (await world.call(identity.ME, token=fleet.token)).bindings == []
    assert (await world.call(identity.ORG_LIST, token=fleet.token)).items == []
    with pytest.raises(errors.NotFound):
        await world.call(org_accounts.LIST, token=fleet.token, org_id=fleet.org_id)


async def test_one_account_works_in_each_project_that_accepts_it_and_in_no_other(world: World) -> None:
    await world.entitled_app()
    second, third = await _project(world, "second"), await _project(world, "third")
    fleet = await world.org_account(accept=[world.project_id, second])
    listed = (await world.call(identity.PROJECT_LIST, token=fleet.token)).items
    assert {project.project_id for project in listed} == {world.project_id, second}
    me = await world.call(identity.ME, token=fleet.token)
    assert {(item.role, item.scope) for item in me.bindings} == {
        ("service_account", world.project_id),
        ("service_account", second),
    }
    deployed = await world.deploy()
    claim = await _claim(world, fleet.token, world.project_id)
    assert claim.operation is not None
    assert claim.operation.operation_id == deployed.operation.operation_id
    assert (await _claim(world, fleet.token, second)).operation is None
    assert (await _claim(world, fleet.token, "second")).operation is None, "by its name too"
    for hidden in (third, "third"):
        with pytest.raises(errors.NotFound):
            await _claim(world, fleet.token, hidden)
    # The work of one project is not reached through another one that accepts the account.
    body, where = {"epoch": claim.epoch}, {"operation_id": claim.operation.operation_id, "project_id": second}
    with pytest.raises(errors.NotFound):
        await world.call(runtime.HEARTBEAT, body, token=fleet.token, **where)
    seen = [(item.project_id, item.holder) for item in (await world.call(controllers.CONTROLLER_LIST)).items]
    assert seen == [(world.project_id, "fleet")], "each project sees the controller as its own"


async def test_only_a_project_with_an_entitlement_can_accept_it(world: World) -> None:
    await world.entitled_app()
    bare = await _project(world, "bare", entitled=False)
    fleet = await world.org_account()
    with pytest.raises(errors.NotEntitled, match="toy"):
        await _accept(world, fleet, bare)
    await _entitle(world, bare)
    await _accept(world, fleet, bare)
    assert (await _claim(world, fleet.token, bare)).operation is None


async def test_a_project_accepts_accounts_of_its_own_organisation_only(world: World) -> None:
    await world.entitled_app()
    other_org = (await world.call(identity.ORG_CREATE, {"name": "other", "first_admin": "admin"})).org_id
    foreign = await world.org_account("foreign", org_id=other_org)
    own = await world.service_account("own")
    own_id = (await world.call(identity.ME, token=own)).actor_id
    for named in ("foreign", foreign.service_account_id, own_id, "own", "ghost"):
        with pytest.raises(errors.NotFound):
            await world.call(org_accounts.ACCEPT, service_account_id=named)
    assert (await world.call(org_accounts.ACCEPTED_LIST)).items == []
    assert (await world.org_account("foreign")).org_id != other_org, "names are unique within an organisation"


async def test_admins_of_the_project_decide_and_the_organisation_does_not_create_it_for_them(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account()
    jane = (await world.person("jane", "project_admin", world.project_id)).token
    mel = (await world.person("mel", "project_member", world.project_id)).token
    with pytest.raises(errors.PermissionDenied):
        await _accept(world, fleet, world.project_id, mel)
    with pytest.raises(errors.NotFound):
        await world.call(
            org_accounts.CREATE, {"name": "mine", "apps": ["toy"]}, token=jane, org_id=await _org_id(world)
        )
    await _accept(world, fleet, world.project_id, jane)
    with pytest.raises(errors.PermissionDenied):
        await world.call(org_accounts.DISMISS, token=mel, service_account_id="fleet")
    await world.call(org_accounts.DISMISS, token=jane, service_account_id="fleet")
    with pytest.raises(errors.NotFound):
        await _claim(world, fleet.token, world.project_id)


async def test_acceptance_and_its_end_are_on_the_record_once(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account()
    first = await world.call(org_accounts.ACCEPT, service_account_id="fleet")
    again = await world.call(org_accounts.ACCEPT, service_account_id=fleet.service_account_id)
    assert again == first
    assert (await world.call(org_accounts.ACCEPTED_LIST)).items == [first]
    await world.call(org_accounts.DISMISS, service_account_id="fleet")
    with pytest.raises(errors.NotFound):
        await world.call(org_accounts.DISMISS, service_account_id="fleet")
    await _accept(world, fleet, world.project_id)
    await _entitle(world, world.project_id, enabled=False)
    kinds = ("identity.service_account.accepted", "identity.service_account.dismissed")
    seen = [event for event in (await world.call(events.EVENT_LIST)).items if event.type in kinds]
    assert [event.type for event in seen] == [kinds[0], kinds[1], kinds[0], kinds[1]]
    assert [event.payload.get("reason") for event in seen if event.type == kinds[1]] == [
        "",
        "the entitlement of the project for the app was disabled",
    ]
    rows = (await world.call(audit.AUDIT_LIST)).items
    dismissed = [row for row in rows if row.action == "identity.service_account.dismiss" and row.result == "success"]
    assert len(dismissed) == 2
    assert {row.target for row in dismissed} == {fleet.service_account_id}


async def test_dismissal_in_one_project_leaves_the_others(world: World) -> None:
    await world.entitled_app()
    second = await _project(world, "second")
    fleet = await world.org_account(accept=[world.project_id, second])
    await _dismiss(world, fleet, second)
    with pytest.raises(errors.NotFound):
        await _claim(world, fleet.token, second)
    assert (await _claim(world, fleet.token, world.project_id)).operation is None
    await _entitle(world, second, enabled=False)
    assert (await _claim(world, fleet.token, world.project_id)).operation is None


async def test_an_entitlement_of_another_app_does_not_count(world: World) -> None:
    await world.entitled_app()
    await world.call(catalog.VERSION_REGISTER, OTHER)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version=OTHER["version"])
    await _entitle(world, world.project_id, app_slug="other")
    fleet = await world.org_account(accept=[world.project_id])
    with pytest.raises(errors.PermissionDenied, match="does not operate other"):
        await _claim(world, fleet.token, world.project_id, "other")
    body = {"app_slug": "other", "holder": "fleet", "take_max": 10}
    with pytest.raises(errors.PermissionDenied, match="does not operate other"):
        await world.call(stewardships.RENEW, body, token=fleet.token)
    await _entitle(world, world.project_id, app_slug="other", enabled=False)
    assert (await _claim(world, fleet.token, world.project_id)).operation is None
    await _entitle(world, world.project_id, enabled=False)
    with pytest.raises(errors.NotFound):
        await _claim(world, fleet.token, world.project_id)
    await _entitle(world, world.project_id)
    with pytest.raises(errors.NotFound):
        await _claim(world, fleet.token, world.project_id)  # the project decides again


async def test_dismissal_ends_leases_stewardships_and_machine_access_at_once(world: World) -> None:
    await world.entitled_app(**CLUSTERED)
    fleet = await world.org_account(accept=[world.project_id])
    running = await world.running_instance(fleet.token)
    body = {"app_slug": "toy", "holder": "fleet", "take_max": 10}
    (steward,) = (await world.call(stewardships.RENEW, body, token=fleet.token)).held
    where = {"instance_id": running.instance.instance_id}
    await world.call(instances.STOP, {"reason": "pause"}, **where)
    held = Held(world, fleet.token, await world.claim(fleet.token, lease_s=60))
    (head,) = [item for item in await world.members(running.instance.instance_id) if item.component_key == "head"]
    granted = await held.enter(head.allocation_id)

    await _dismiss(world, fleet, world.project_id)
    operation = await world.operation(held.operation.operation_id)
    assert (operation.status, operation.lease) == ("running", None)
    world.clock.forward(1)
    await grants_reconcile.sweep(world.site)
    grants = (await world.call(access.GRANT_LIST)).items
    assert {grant.grant_id: grant.state for grant in grants}[granted.grant_id] == "ended"

    own = await world.service_account("own")
    taken = await world.claim(own)
    assert taken.operation is not None, "another controller can continue without waiting for the lease"
    assert taken.operation.operation_id == operation.operation_id
    assert [item.epoch for item in (await world.call(stewardships.RENEW, body, token=own)).held] == [steward.epoch + 2]


async def test_an_account_that_is_accepted_again_cannot_continue_with_its_old_epoch(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    await world.deploy()
    first = await world.claim(fleet.token, lease_s=60)
    held = Held(world, fleet.token, first)
    await _dismiss(world, fleet, world.project_id)
    await _accept(world, fleet, world.project_id)
    with pytest.raises(errors.LeaseLost):
        await held.heartbeat()
    with pytest.raises(errors.LeaseLost):
        await held.step("install")
    again = await world.claim(fleet.token)
    assert again.operation is not None
    assert again.epoch == first.epoch + 1


async def test_an_accepted_account_can_be_the_operator_of_an_instance(world: World) -> None:
    await world.entitled_app()
    second = await _project(world, "second")
    fleet = await world.org_account(accept=[second])
    deployed = await world.deploy()
    body, where = {"operator_service_account_id": "fleet", "reason": "ours"}, deployed.instance.instance_id
    with pytest.raises(errors.ValidationFailed, match="no active service account fleet"):
        await world.call(instances.OPERATOR_SET, body, instance_id=where)
    await _accept(world, fleet, world.project_id)
    operated = await world.call(instances.OPERATOR_SET, body, instance_id=where)
    assert operated.operator_service_account_id == fleet.service_account_id
    assert (await world.claim(await world.service_account("own"))).operation is None
    assert (await world.claim(fleet.token)).operation is not None


async def test_a_disabled_account_can_do_nothing_and_continues_after_it_is_enabled(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    where = {"org_id": fleet.org_id, "service_account_id": fleet.service_account_id}
    await world.call(org_accounts.DISABLE, **where)
    with pytest.raises(errors.TokenInvalid):
        await _claim(world, fleet.token, world.project_id)
    await world.call(org_accounts.ENABLE, **where)
    assert (await world.call(org_accounts.ACCEPTED_LIST)).items[0].name == "fleet"
    keys = (await world.call(org_accounts.KEY_LIST, **where)).items
    assert [key.key_id for key in keys] == [fleet.key_id]
    rotated = await world.call(org_accounts.KEY_ROTATE, {}, key_id=fleet.key_id, **where)
    await world.call(org_accounts.KEY_REVOKE, key_id=rotated.key_id, **where)
    assert (await world.call(org_accounts.KEY_LIST, **where)).items == []


async def test_a_deleted_account_is_accepted_nowhere_and_its_name_is_free(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    await world.call(org_accounts.DELETE, org_id=fleet.org_id, service_account_id=fleet.service_account_id)
    assert (await world.call(org_accounts.ACCEPTED_LIST)).items == []
    with pytest.raises(errors.NotFound):
        await world.call(org_accounts.ACCEPT, service_account_id=fleet.service_account_id)
    new = await world.org_account()
    with pytest.raises(errors.NotFound):
        await _claim(world, new.token, world.project_id)


async def test_a_project_that_accepts_an_account_can_be_deleted(world: World) -> None:
    await world.entitled_app()
    second = await _project(world, "second")
    fleet = await world.org_account(accept=[second])
    await world.call(identity.PROJECT_DELETE, project_id=second)
    assert (await world.call(identity.PROJECT_LIST, token=fleet.token)).items == []
    assert (await world.call(identity.ME, token=fleet.token)).bindings == []


async def test_the_routes_of_projects_and_organisations_do_not_reach_each_others_accounts(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    await world.service_account("own")
    own_id = (await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id="own")).service_account_id
    for named in ("fleet", fleet.service_account_id):
        for endpoint in (identity.SERVICE_ACCOUNT_GET, identity.SERVICE_ACCOUNT_DELETE):
            with pytest.raises(errors.NotFound):
                await world.call(endpoint, service_account_id=named)
    for named in ("own", own_id):
        with pytest.raises(errors.NotFound):
            await world.call(org_accounts.GET, org_id=fleet.org_id, service_account_id=named)


def test_no_controller_and_no_temporary_access_can_accept_accounts() -> None:
    accept, dismiss = org_accounts.ACCEPT.permission, org_accounts.DISMISS.permission
    assert {role for role, keys in ROLES.items() if accept in keys} == {"tenant_admin", "project_admin"}
    assert {role for role, keys in ROLES.items() if dismiss in keys} == {"tenant_admin", "project_admin", BREAK_GLASS}
    assert accept not in CONTROLLER_KEYS
