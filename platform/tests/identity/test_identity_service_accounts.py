"""Service accounts and their keys: a revocation counts at once, and a rotated key works until its grace ends."""

from dataclasses import dataclass
from typing import Any

import pytest
from gpuaas_contract import errors, identity, stewardships
from gpuaas_contract.endpoint import Endpoint
from platform_world import World
from scripted_controller import Held

HOUR_S = 3600


@dataclass
class Robot:
    world: World
    account_id: str
    key: identity.ServiceAccountKey

    @classmethod
    async def make(cls, world: World, name: str = "robot") -> "Robot":
        account = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": name})
        key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account.service_account_id)
        return cls(world, account.service_account_id, key)

    async def sign_in(self, key: identity.ServiceAccountKey | None = None) -> str:
        key = key or self.key
        body = {"key_id": key.key_id, "client_secret": key.client_secret}
        return (await self.world.call(identity.SERVICE_ACCOUNT_TOKEN, body)).access_token

    async def works(self, token: str) -> bool:
        return (await self.world.send(identity.ME, token=token)).status_code == 200

    async def can_sign_in(self, key: identity.ServiceAccountKey | None = None) -> bool:
        try:
            await self.sign_in(key)
        except errors.CredentialsInvalid:
            return False
        return True

    async def rotate(self, **body: int) -> identity.ServiceAccountKey:
        return await self.world.call(
            identity.SERVICE_ACCOUNT_KEY_ROTATE, body, service_account_id=self.account_id, key_id=self.key.key_id
        )


async def test_keys_are_shown_without_their_secrets(world: World) -> None:
    robot = await Robot.make(world)
    listed = await world.send(identity.SERVICE_ACCOUNT_KEY_LIST, service_account_id=robot.account_id)
    [shown] = listed.json()["items"]
    assert shown["key_id"] == robot.key.key_id
    assert shown["last_used_at"] is None
    assert set(shown) == {"key_id", "service_account_id", "created_at", "created_by", "last_used_at", "expires_at"}
    await robot.sign_in()
    used = await world.call(identity.SERVICE_ACCOUNT_KEY_LIST, service_account_id=robot.account_id)
    assert used.items[0].last_used_at == world.clock()


@pytest.mark.parametrize("end", [identity.SERVICE_ACCOUNT_DISABLE, identity.SERVICE_ACCOUNT_DELETE])
async def test_the_leases_of_an_account_end_with_its_access(world: World, end: Endpoint[Any, Any]) -> None:
    await world.entitled_app()
    first, second = await world.service_account("first"), await world.service_account("second")
    await world.running_instance(first)
    body = {"app_slug": "toy", "holder": "controller", "take_max": 10}
    (steward,) = (await world.call(stewardships.RENEW, body, token=first)).held
    await world.deploy("other")
    held = await world.claim(first, lease_s=60)
    assert held.operation is not None
    await world.call(end, service_account_id="first")
    operation = await world.operation(held.operation.operation_id)
    assert (operation.status, operation.lease) == ("running", None)
    taken = await world.claim(second)
    assert taken.operation is not None, "another controller can continue without waiting for the lease"
    assert (taken.operation.operation_id, taken.epoch) == (operation.operation_id, held.epoch + 1)
    (taken_over,) = (await world.call(stewardships.RENEW, body, token=second)).held
    assert taken_over.epoch > steward.epoch


async def test_an_account_that_is_enabled_again_cannot_continue_with_its_old_epoch(world: World) -> None:
    await world.entitled_app()
    await world.service_account("own")
    keys = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id="own")
    login = {"key_id": keys.key_id, "client_secret": keys.client_secret}
    await world.deploy()
    first = await world.claim((await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token, lease_s=60)
    await world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id="own")
    await world.call(identity.SERVICE_ACCOUNT_ENABLE, service_account_id="own")
    token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
    with pytest.raises(errors.LeaseLost):
        await Held(world, token, first).heartbeat()
    assert (await world.claim(token)).epoch == first.epoch + 1


async def test_disabling_ends_tokens_at_once_and_enabling_lets_the_keys_work_again(world: World) -> None:
    robot = await Robot.make(world)
    token = await robot.sign_in()
    disabled = await world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=robot.account_id)
    assert disabled.state == "disabled"
    assert not await robot.works(token)
    assert not await robot.can_sign_in()
    await world.call(identity.SERVICE_ACCOUNT_ENABLE, service_account_id=robot.account_id)
    assert not await robot.works(token)
    assert await robot.can_sign_in()


async def test_a_deleted_account_is_gone_with_keys_and_tokens_and_its_name_is_free(world: World) -> None:
    robot = await Robot.make(world)
    token = await robot.sign_in()
    deleted = await world.call(identity.SERVICE_ACCOUNT_DELETE, service_account_id=robot.account_id)
    assert deleted.state == "deleted"
    assert not await robot.works(token)
    assert not await robot.can_sign_in()
    assert (await world.call(identity.SERVICE_ACCOUNT_LIST)).items == []
    shown = await world.call(identity.SERVICE_ACCOUNT_GET, service_account_id=robot.account_id)
    assert shown.state == "deleted"
    changes: list[Endpoint[Any, Any]] = [identity.SERVICE_ACCOUNT_ENABLE, identity.SERVICE_ACCOUNT_KEY_CREATE]
    for endpoint in changes:
        assert (await world.send(endpoint, service_account_id=robot.account_id)).status_code == 409
    again = await Robot.make(world)
    assert again.account_id != robot.account_id
    await world.call(identity.SERVICE_ACCOUNT_DELETE, service_account_id=again.account_id)


async def test_a_name_in_use_is_refused(world: World) -> None:
    await Robot.make(world)
    with pytest.raises(errors.Conflict):
        await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "robot"})


async def test_rotating_without_grace_ends_the_old_key_and_its_tokens_at_once(world: World) -> None:
    robot = await Robot.make(world)
    token = await robot.sign_in()
    new = await robot.rotate()
    assert not await robot.works(token)
    assert not await robot.can_sign_in()
    assert await robot.can_sign_in(new)


async def test_with_grace_both_keys_work_until_it_is_over(world: World) -> None:
    robot = await Robot.make(world)
    new = await robot.rotate(grace_s=HOUR_S // 2)
    token = await robot.sign_in()
    assert await robot.can_sign_in(new)
    world.clock.forward(HOUR_S // 2 - 1)
    assert await robot.works(token)
    assert await robot.can_sign_in()
    late = await robot.sign_in()
    world.clock.forward(2)
    assert not await robot.works(token)
    assert not await robot.works(late)
    assert not await robot.can_sign_in()
    assert await robot.can_sign_in(new)
    left = await world.call(identity.SERVICE_ACCOUNT_KEY_LIST, service_account_id=robot.account_id)
    assert [key.key_id for key in left.items] == [new.key_id]


async def test_a_token_made_before_the_rotation_does_not_outlive_the_grace(world: World) -> None:
    robot = await Robot.make(world)
    token = await robot.sign_in()
    await robot.rotate(grace_s=60)
    assert await robot.works(token)
    world.clock.forward(61)
    assert not await robot.works(token)


async def test_a_second_rotation_does_not_lengthen_the_grace(world: World) -> None:
    robot = await Robot.make(world)
    await robot.rotate(grace_s=60)
    await robot.rotate(grace_s=HOUR_S)
    world.clock.forward(61)
    assert not await robot.can_sign_in()


@pytest.mark.parametrize("grace_s", [-1, 24 * HOUR_S + 1])
async def test_grace_is_at_most_a_day(world: World, grace_s: int) -> None:
    robot = await Robot.make(world)
    with pytest.raises(errors.ValidationFailed):
        await robot.rotate(grace_s=grace_s)
    assert await robot.can_sign_in()


async def test_revoking_a_key_ends_its_tokens_and_leaves_the_other_keys_alone(world: World) -> None:
    robot = await Robot.make(world)
    other = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=robot.account_id)
    token, other_token = await robot.sign_in(), await robot.sign_in(other)
    options: dict[str, Any] = {"service_account_id": robot.account_id, "key_id": robot.key.key_id}
    revoked = await world.call(identity.SERVICE_ACCOUNT_KEY_REVOKE, **options)
    assert revoked.key_id == robot.key.key_id
    assert not await robot.works(token)
    assert await robot.works(other_token)
    assert not await robot.can_sign_in()
    assert (await world.send(identity.SERVICE_ACCOUNT_KEY_REVOKE, **options)).status_code == 404


async def test_an_account_is_reached_through_its_own_project_only(world: World) -> None:
    robot = await Robot.make(world)
    org = (await world.call(identity.ORG_LIST)).items[0]
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org.org_id)
    options: dict[str, Any] = {
        "service_account_id": robot.account_id,
        "key_id": robot.key.key_id,
        "project_id": sibling.project_id,
    }
    routes: list[Endpoint[Any, Any]] = [
        identity.SERVICE_ACCOUNT_GET,
        identity.SERVICE_ACCOUNT_DISABLE,
        identity.SERVICE_ACCOUNT_ENABLE,
        identity.SERVICE_ACCOUNT_DELETE,
        identity.SERVICE_ACCOUNT_KEY_CREATE,
        identity.SERVICE_ACCOUNT_KEY_LIST,
        identity.SERVICE_ACCOUNT_KEY_ROTATE,
        identity.SERVICE_ACCOUNT_KEY_REVOKE,
    ]
    for endpoint in routes:
        body: dict[str, Any] | None = {} if endpoint.name.endswith(".rotate") else None
        assert (endpoint.name, (await world.send(endpoint, body, **options)).status_code) == (endpoint.name, 404)
    assert await robot.can_sign_in()


async def test_a_key_of_another_account_is_not_found_under_this_one(world: World) -> None:
    robot, other = await Robot.make(world), await Robot.make(world, "other")
    options: dict[str, Any] = {"service_account_id": robot.account_id, "key_id": other.key.key_id}
    assert (await world.send(identity.SERVICE_ACCOUNT_KEY_REVOKE, **options)).status_code == 404
    assert await other.can_sign_in()


async def test_members_use_service_accounts_but_do_not_manage_them(world: World) -> None:
    robot = await Robot.make(world)
    member = await world.person("member", "project_member", world.project_id)
    options: dict[str, Any] = {
        "service_account_id": robot.account_id,
        "key_id": robot.key.key_id,
        "token": member.token,
    }
    assert (await world.send(identity.SERVICE_ACCOUNT_GET, **options)).status_code == 200
    changes: list[Endpoint[Any, Any]] = [identity.SERVICE_ACCOUNT_DISABLE, identity.SERVICE_ACCOUNT_KEY_REVOKE]
    for endpoint in changes:
        assert (await world.send(endpoint, **options)).status_code == 403


async def test_a_session_stores_the_key_it_was_made_with(world: World) -> None:
    robot = await Robot.make(world)
    token = await robot.sign_in()
    rows = await world.site.database.reader.all("SELECT key_id FROM tokens WHERE actor_id = $1", robot.account_id)
    assert [row[0] for row in rows] == [robot.key.key_id]
    assert (await world.call(identity.ME, token=token)).session_id
