"""A caller who waited is admitted again before the platform changes or returns anything for them."""

import asyncio
import dataclasses
import uuid
from typing import Any

import msgspec
import pytest
from gpuaas_contract import actions, bindings, errors, events, identity, runtime, users
from gpuaas_platform.identity import store
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings
from platform_world import PASSWORD, World
from scripted_controller import Cluster, Controller
from server_process import until

ACTION: dict[str, Any] = {
    "permissions": {"toy.wall.paint": {"meaning": "paint walls", "roles": ["project_member"]}},
    "actions": [
        {"name": "paint", "title": "Paint", "permission": "toy.wall.paint", "input_schema": {"type": "object"}}
    ],
}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """Every wait counts as long."""
    return dataclasses.replace(settings, stream_recheck_s=0.001)


async def test_a_claim_of_an_account_disabled_while_it_waits_gets_no_operation_and_leases_none(world: World) -> None:
    await world.entitled_app()
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, identity.CreateServiceAccount(name="old", apps=["toy"]))
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
    login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
    token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
    body = runtime.ClaimOperation(app_slug="toy", holder="old", claim_id=str(uuid.uuid4()), lease_s=15, wait_s=30)

    claim = asyncio.create_task(world.send(runtime.CLAIM, body, token=token))
    await until(lambda: world.site.hub.waiting == 1)
    await world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=account.service_account_id)
    deployed = await world.deploy()

    assert (await claim).status_code == 401
    operation = await world.operation(deployed.operation.operation_id)
    assert (operation.status, operation.lease, operation.epoch) == ("accepted", None, 0)
    successor = await Controller.start(world, "new")
    assert (await successor.take()).operation_id == operation.operation_id


async def test_the_result_of_an_action_is_not_shown_to_a_caller_who_lost_the_role_while_waiting(world: World) -> None:
    cluster = await Cluster.running(world, **ACTION)
    member = await world.person("member", "project_member", world.project_id)
    (binding,) = (await world.call(bindings.PROJECT_BINDING_LIST)).items
    body = actions.InvokeAction()
    where: dict[str, Any] = {"instance_id": cluster.instance_id, "action": "paint"}
    asking = asyncio.create_task(
        world.send(actions.ACTION_INVOKE, body, token=member.token, query={"wait_s": 30}, **where)
    )
    held = await cluster.controller.take(wait_s=30)
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=binding.binding_id)
    await held.complete(result={"colour": "secret"})
    answer = await asking
    assert (answer.status_code, "secret" in answer.text) == (404, False)


async def test_a_change_whose_caller_signed_out_during_slow_preparation_is_not_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, may_finish = asyncio.Event(), asyncio.Event()

    async def slow_hash(_: str) -> str:
        started.set()
        await may_finish.wait()
        return "hash"

    other = await world.person("other", "platform_admin", "platform")
    monkeypatch.setattr(passwords, "hashed", slow_hash)
    body = users.CreateUser(name="late", password=PASSWORD)
    creating = asyncio.create_task(world.send(users.USER_CREATE, body, token=other.token))
    await started.wait()
    await world.call(users.USER_DISABLE, user_id=other.user_id)
    may_finish.set()
    assert (await creating).status_code == 401
    with pytest.raises(errors.NotFound):
        await world.call(users.USER_GET, user_id="late")


async def test_a_caller_who_waited_gets_no_answer_of_the_project_that_lost_its_name_to_another(world: World) -> None:
    await world.entitled_app()
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    second = (await world.call(identity.PROJECT_CREATE, {"name": "second"}, org_id=org_id)).project_id
    fleet = await world.org_account(accept=[world.project_id])
    body = runtime.ClaimOperation(app_slug="toy", holder="fleet", claim_id=str(uuid.uuid4()), lease_s=15, wait_s=30)
    after = (await world.call(events.EVENT_LIST)).cursor
    polls = [
        asyncio.create_task(world.send(runtime.CLAIM, body, token=fleet.token, project_id="research")),
        asyncio.create_task(
            world.send(
                events.EVENT_LIST, token=fleet.token, project_id="research", query={"wait_s": 30, "after": after}
            )
        ),
    ]
    await until(lambda: world.site.hub.waiting == len(polls))
    await _give_name_and_account_to(world, second, fleet.service_account_id)
    await world.deploy()
    answers = [await poll for poll in polls]
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, "not_found")] * len(polls)


async def _give_name_and_account_to(world: World, second: str, account_id: str) -> None:
    """In one transaction, so that no poll looks in between: the project `second` gets the name and the acceptance."""

    async def swap(tx: db.Tx) -> None:
        for project_id, name in ((world.project_id, "first"), (second, "research")):
            project = await store.PROJECTS.get(tx, project_id)
            assert project is not None
            await store.PROJECTS.save(tx, msgspec.structs.replace(project, name=name))
        accepted = await store.ACCEPTED_ACCOUNTS.get(tx, f"{world.project_id}/{account_id}")
        assert accepted is not None
        await store.ACCEPTED_ACCOUNTS.delete(tx, accepted.acceptance_id)
        await store.ACCEPTED_ACCOUNTS.insert(tx, msgspec.structs.replace(accepted, project_id=second))

    await world.site.database.write(swap)
