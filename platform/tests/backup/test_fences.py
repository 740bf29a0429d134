"""After a restore, what was issued before it is refused: sessions, claims, certificates, cursors, one-time tokens."""

import uuid

import pytest
from backup_lab import Backups
from gpuaas_contract import audit, capacity, errors, events, identity, node
from gpuaas_contract.event_types import EntitlementChanged
from gpuaas_platform.access.machines import reconcile as grants
from gpuaas_platform.call import Owner, Site, system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import ssh_trust
from gpuaas_platform.record import service
from platform_world import World, enrol_body


async def test_a_session_from_before_is_ended_and_the_password_still_works(world: World, backups: Backups) -> None:
    async with backups.restored(world) as restored:
        assert (await restored.send(identity.ME)).status_code == 401
        restored.token = await restored.sign_in("admin")
        assert (await restored.call(identity.ME)).name == "admin"


async def test_a_controller_that_claimed_before_the_backup_is_refused_and_can_claim_again(
    world: World, backups: Backups
) -> None:
    await world.entitled_app()
    key = await _key(world)
    await world.deploy()
    before = await world.claim(await _signed_in(world, key))
    async with backups.restored(world) as restored:
        token = await _signed_in(restored, key)
        with pytest.raises(errors.LeaseLost):
            await restored.report(token, before, before.members[0].member_id, "provisioning")
        again = await restored.claim(token)
        assert (again.operation is not None, again.epoch > before.epoch + 1000) == (True, True)
        await restored.report(token, again, again.members[0].member_id, "provisioning")


async def test_a_controller_that_claimed_after_the_backup_is_refused(world: World, backups: Backups) -> None:
    """Without a higher epoch, the next claim would get the same one."""
    await world.entitled_app()
    key = await _key(world)
    await world.deploy()
    assert (await backups.make()).returncode == 0
    later = await world.claim(await _signed_in(world, key))
    assert (await backups.restore()).returncode == 0
    async with backups.opened(world) as restored:
        token = await _signed_in(restored, key)
        await restored.claim(token)
        with pytest.raises(errors.LeaseLost):
            await restored.report(token, later, later.members[0].member_id, "provisioning")


async def test_certificates_from_before_are_refused_by_serial_and_by_a_new_authority(
    world: World, backups: Backups
) -> None:
    allocation = await world.allocation("n1")
    granted = await world.machine_access(world.token, allocation.allocation_id)
    trusted = await ssh_trust.public_keys(world.site.database.reader, world.site)
    async with backups.restored(world) as restored:
        await grants.sweep(restored.site)
        machine = restored.nodes["n1"]
        machine.token = await restored.node_login(machine)
        task = await restored.next_task(machine)
        assert task is not None
        assert task["type"] == "ssh.trust"
        assert task["params"]["revoked_serials"] == [int(granted.serial)]
        assert len(task["params"]["user_ca_public_keys"]) == 1
        assert task["params"]["user_ca_public_keys"] != trusted


async def test_a_follower_ahead_of_the_backup_gets_410_and_one_behind_it_continues(
    world: World, backups: Backups
) -> None:
    await _emit(world.site, 3)
    behind = (await world.call(events.EVENT_LIST)).cursor
    assert (await backups.make()).returncode == 0
    await _emit(world.site, 3)
    ahead = (await world.call(events.EVENT_LIST)).cursor
    assert (await backups.restore()).returncode == 0
    async with backups.opened(world) as restored:
        restored.token = await restored.sign_in("admin")
        with pytest.raises(errors.CursorExpired) as lost:
            await restored.call(events.EVENT_LIST, query={"after": ahead})
        await _emit(restored.site, 1)
        for position in (ahead, ahead + 1000):
            with pytest.raises(errors.CursorExpired):
                await restored.call(events.EVENT_LIST, query={"after": position})
        (event,) = (await restored.call(events.EVENT_LIST, query={"after": behind})).items
        assert event.cursor >= lost.value.details["oldest"]
        assert len((await restored.call(events.EVENT_LIST)).items) == 4


async def test_the_restore_is_an_event_and_an_audit_row_with_the_time_of_the_backup(
    world: World, backups: Backups
) -> None:
    await world.allocation("used")
    await world.node("free")
    async with backups.restored(world) as restored:
        restored.token = await restored.sign_in("admin")
        cut_at = backups.manifest().header.cut_at
        (row,) = (await restored.call(audit.PLATFORM_AUDIT_LIST, query={"action": "record.platform.restore"})).items
        assert row.details["cut_at"] == cut_at.isoformat()
        happened = (await restored.call(events.PLATFORM_EVENT_LIST, query={"limit": 500})).items[-1]
        assert happened.type == "record.platform.restored"
        assert (happened.payload["nodes_cordoned"], happened.payload["grants"]) == (1, 0)


async def test_nodes_that_were_free_are_not_offered_before_they_were_sanitised(world: World, backups: Backups) -> None:
    """Since the backup, another tenant may have got the node."""
    await world.node("n1")
    async with backups.restored(world) as restored:
        restored.token = await restored.sign_in("admin")
        with pytest.raises(errors.ApiError):
            await restored.call(capacity.ALLOCATION_CREATE, {})
        await restored.call(capacity.NODE_UNCORDON, {"reason": "it has no user"}, node_id="n1")
        with pytest.raises(errors.NoCapacity):
            await restored.call(capacity.ALLOCATION_CREATE, {})
        await restored.call(capacity.NODE_MARK_SANITISED, {"reason": "reinstalled"}, node_id="n1")
        assert (await restored.call(capacity.ALLOCATION_CREATE, {})).items


async def test_an_enrolment_token_that_was_used_after_the_backup_does_not_work_again(
    world: World, backups: Backups
) -> None:
    token = await world.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name="n1"))
    async with backups.restored(world) as restored:
        key = (await world.node("other")).key
        with pytest.raises(errors.CredentialsInvalid):
            await restored.call(node.ENROL, enrol_body(token.token, "n1", key), token="")


async def _key(world: World) -> identity.ServiceAccountLogin:
    """A key of a new service account."""
    body = identity.CreateServiceAccount(name=f"controller-{uuid.uuid4().hex[:8]}", apps=["toy"])
    account = await world.call(identity.SERVICE_ACCOUNT_CREATE, body)
    account_id = account.service_account_id
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=account_id)
    return identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)


async def _signed_in(world: World, key: identity.ServiceAccountLogin) -> str:
    return (await world.call(identity.SERVICE_ACCOUNT_TOKEN, key, token="")).access_token


async def _emit(site: Site, count: int) -> None:
    """Write events of the first project."""

    async def use_case(tx: db.Tx) -> None:
        row = await tx.one("SELECT org_id, project_id FROM projects")
        assert row is not None
        for _ in range(count):
            payload = EntitlementChanged(app_slug="toy", enabled=True)
            origin = system_origin(site.clock())
            await service.emit(tx, origin, "catalog.entitlement.changed", payload, Owner(row[0], row[1]))

    await site.database.write(use_case)
