"""A service account of an organisation operates one app, only in the projects that accept it and entitle the app."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
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
from gpuaas_platform.call import Call
from gpuaas_platform.identity import store
from gpuaas_platform.operations import claim as claim_rules
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


async def test_before_a_project_accepts_it_no_project_is_found(world: World) -> None:
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


async def test_a_repeated_accept_has_one_effect_and_one_event_also_after_a_dismissal(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account()
    where = {"service_account_id": fleet.service_account_id}
    first = await world.call(org_accounts.ACCEPT, key="once", **where)
    assert await world.call(org_accounts.ACCEPT, key="once", **where) == first
    await _dismiss(world, fleet, world.project_id)
    assert await world.call(org_accounts.ACCEPT, key="once", **where) == first, "a late copy of the first request"
    assert (await world.call(org_accounts.ACCEPTED_LIST)).items == []
    with pytest.raises(errors.NotFound):
        await _claim(world, fleet.token, world.project_id)
    seen = [event.type for event in (await world.call(events.EVENT_LIST)).items]
    assert seen.count("identity.service_account.accepted") == 1


async def test_people_see_the_permissions_that_an_account_has_in_their_project(world: World) -> None:
    await world.entitled_app(controller={"permissions": [EXECUTE, "apps.instance.read"]})
    second = await _project(world, "second")
    fleet = await world.org_account()
    accepted = await world.call(org_accounts.ACCEPT, service_account_id="fleet")
    assert set(accepted.permissions) == {EXECUTE, "apps.instance.read"}
    await _accept(world, fleet, second)
    third = await _project(world, "third")
    await publish_version(world, "1.1.0", controller={"permissions": [EXECUTE, "apps.operation.read"]})
    wider = {EXECUTE, "apps.instance.read", "apps.operation.read"}
    where = {"org_id": fleet.org_id, "service_account_id": "fleet"}
    for _ in range(2):
        await world.call(org_accounts.BIND, {"apps": ["toy"]}, **where)
    jane = (await world.person("jane", "project_admin", world.project_id)).token
    (shown,) = (await world.call(org_accounts.ACCEPTED_LIST, token=jane)).items
    assert (set(shown.permissions), shown.accepted_at) == (wider, accepted.accepted_at)
    for project_id, expected in ((world.project_id, 1), (second, 1), (third, 0)):
        listed = (await world.call(events.EVENT_LIST, project_id=project_id)).items
        bound = [event.payload for event in listed if event.type == "identity.service_account.bound"]
        assert len(bound) == expected, "a bind that changes no permission adds no event"
        assert all((item["name"], set(item["permissions"])) == ("fleet", wider) for item in bound)
        assert all(set(item["permissions_before"]) == {EXECUTE, "apps.instance.read"} for item in bound)
    dismissed = await world.call(org_accounts.DISMISS, service_account_id="fleet")
    assert set(dismissed.permissions) == wider


async def test_people_see_that_an_account_is_disabled(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account()
    await _disable(world, fleet)
    assert (await world.call(org_accounts.ACCEPT, service_account_id="fleet")).state == "disabled"
    await world.call(org_accounts.ENABLE, org_id=fleet.org_id, service_account_id="fleet")
    (shown,) = (await world.call(org_accounts.ACCEPTED_LIST)).items
    assert shown.state == "active"


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
    with pytest.raises(errors.PermissionDenied, match="does not operate other") as refused:
        await _claim(world, fleet.token, world.project_id, "other")
    assert "gpuaas service-account create NAME --app other --org ORG" in refused.value.fix, "bind is refused for it"
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


async def test_dismissal_ends_leases_and_stewardships_at_once_and_machine_access_at_the_next_sweep(
    world: World,
) -> None:
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


Ending = Callable[[World, OrgAccount], Awaitable[None]]


async def _dismiss_here(world: World, fleet: OrgAccount) -> None:
    await _dismiss(world, fleet, world.project_id)


async def _disable(world: World, fleet: OrgAccount) -> None:
    await world.call(org_accounts.DISABLE, org_id=fleet.org_id, service_account_id=fleet.service_account_id)


def _after_the_last_check(monkeypatch: pytest.MonkeyPatch, checks: int, act: Callable[[], Awaitable[None]]) -> None:
    """Run `act` after this number of checks outside the transaction, which all have succeeded."""
    check, left = claim_rules.check_bound, checks

    async def checked(call: Call, app_slug: str) -> None:
        nonlocal left
        await check(call, app_slug)
        left -= 1
        if left == 0:
            await act()

    monkeypatch.setattr(claim_rules, "check_bound", checked)


@pytest.mark.parametrize(("end", "refusal"), [(_dismiss_here, errors.NotFound), (_disable, errors.TokenInvalid)])
async def test_an_account_that_loses_its_access_just_before_the_write_gets_no_lease(
    world: World, monkeypatch: pytest.MonkeyPatch, end: Ending, refusal: type[errors.ApiError]
) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    deployed = await world.deploy()
    _after_the_last_check(monkeypatch, 2, lambda: end(world, fleet))
    with pytest.raises(refusal):
        await _claim(world, fleet.token, world.project_id)
    operation = await world.operation(deployed.operation.operation_id)
    assert (operation.status, operation.lease, operation.epoch) == ("accepted", None, 0)


@pytest.mark.parametrize(("end", "refusal"), [(_dismiss_here, errors.NotFound), (_disable, errors.TokenInvalid)])
async def test_an_account_that_loses_its_access_just_before_the_write_gets_no_stewardship(
    world: World, monkeypatch: pytest.MonkeyPatch, end: Ending, refusal: type[errors.ApiError]
) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    await world.running_instance(fleet.token)
    _after_the_last_check(monkeypatch, 1, lambda: end(world, fleet))
    body = {"app_slug": "toy", "holder": "fleet", "take_max": 10}
    with pytest.raises(refusal):
        await world.call(stewardships.RENEW, body, token=fleet.token)
    own = await world.service_account("own")
    assert [item.epoch for item in (await world.call(stewardships.RENEW, body, token=own)).held] == [1]


async def test_disabling_the_account_ends_its_leases_in_every_project_and_keeps_the_acceptances(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id, await _project(world, "second")])
    await world.running_instance(fleet.token)
    body = {"app_slug": "toy", "holder": "fleet", "take_max": 10}
    (steward,) = (await world.call(stewardships.RENEW, body, token=fleet.token)).held
    await world.deploy("two")
    first = await world.claim(fleet.token, lease_s=60)
    assert first.operation is not None

    await _disable(world, fleet)
    operation = await world.operation(first.operation.operation_id)
    assert (operation.status, operation.lease) == ("running", None)
    own = await world.service_account("own")
    taken = await world.claim(own)
    assert (taken.operation is not None, taken.epoch) == (True, first.epoch + 1)
    epochs = {item.epoch for item in (await world.call(stewardships.RENEW, body, token=own)).held}
    assert steward.epoch + 2 in epochs
    assert len((await world.call(org_accounts.ACCEPTED_LIST)).items) == 1, "enabled again, it works as before"


async def test_an_account_that_is_enabled_again_cannot_continue_with_its_old_epoch(world: World) -> None:
    await world.entitled_app()
    fleet = await world.org_account(accept=[world.project_id])
    await world.deploy()
    first = await world.claim(fleet.token, lease_s=60)
    await _disable(world, fleet)
    where = {"org_id": fleet.org_id, "service_account_id": fleet.service_account_id}
    await world.call(org_accounts.ENABLE, **where)
    key = await world.call(org_accounts.KEY_CREATE, **where)
    login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
    token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
    with pytest.raises(errors.LeaseLost):
        await Held(world, token, first).heartbeat()
    assert (await world.claim(token)).epoch == first.epoch + 1


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


async def test_an_operator_of_another_app_is_refused_with_a_command_that_works(world: World) -> None:
    await world.entitled_app()
    await world.call(catalog.VERSION_REGISTER, OTHER)
    await world.call(catalog.VERSION_PUBLISH, {}, app_slug="other", version=OTHER["version"])
    await _entitle(world, world.project_id, app_slug="other")
    org_id = await _org_id(world)
    await world.call(org_accounts.CREATE, {"name": "other-fleet", "apps": ["other"]}, org_id=org_id)
    await world.call(org_accounts.ACCEPT, service_account_id="other-fleet")
    deployed = await world.deploy()
    body = {"operator_service_account_id": "other-fleet", "reason": "ours"}
    with pytest.raises(errors.ValidationFailed, match="other-fleet does not operate toy") as refused:
        await world.call(instances.OPERATOR_SET, body, instance_id=deployed.instance.instance_id)
    assert "service-account bind" not in refused.value.fix
    assert f"gpuaas service-account create NAME --app toy --org {org_id}" in refused.value.fix
    assert "gpuaas service-account accept NAME" in refused.value.fix


async def test_an_id_comes_before_a_name_wherever_an_account_is_named(world: World) -> None:
    await world.entitled_app()
    decoy, fleet = await world.org_account("decoy"), await world.org_account()
    where = {"org_id": fleet.org_id, "service_account_id": decoy.service_account_id}
    renamed = msgspec.structs.replace(await world.call(org_accounts.GET, **where), name=fleet.service_account_id)
    await world.site.database.write(lambda tx: store.SERVICE_ACCOUNTS.save(tx, renamed))  # from a release before
    for account in (decoy, fleet):
        await _accept(world, account, world.project_id)
    deployed = await world.deploy()
    body = {"operator_service_account_id": fleet.service_account_id, "reason": "ours"}
    operated = await world.call(instances.OPERATOR_SET, body, instance_id=deployed.instance.instance_id)
    assert operated.operator_service_account_id == fleet.service_account_id
    named = {"org_id": fleet.org_id, "service_account_id": fleet.service_account_id}
    assert (await world.call(org_accounts.GET, **named)).name == "fleet"
    await _dismiss(world, fleet, world.project_id)
    left = (await world.call(org_accounts.ACCEPTED_LIST)).items
    assert [item.service_account_id for item in left] == [decoy.service_account_id]


async def test_a_new_account_cannot_have_a_name_that_looks_like_an_id(world: World) -> None:
    await world.entitled_app()
    body = {"name": "sa_01k9z0c5p3v2m8q7r6t5w4x3y2", "apps": ["toy"]}
    with pytest.raises(errors.ValidationFailed, match="sa_"):
        await world.call(identity.SERVICE_ACCOUNT_CREATE, body)
    with pytest.raises(errors.ValidationFailed, match="sa_"):
        await world.call(org_accounts.CREATE, body, org_id=await _org_id(world))


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
