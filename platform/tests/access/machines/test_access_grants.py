"""Machine access is listed, and ends with its reason to exist: the node gets the serials it must refuse."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
import structlog
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate
from gpuaas_contract import access, audit, bindings, capacity, catalog, errors, events, identity, instances, users
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.kit import db
from platform_world import Node, World
from scripted_controller import CLUSTERED, Held


@dataclass
class Entered:
    """A controller that holds a deploy and has a certificate for one of its machines."""

    world: World
    held: Held
    node: Node
    allocation_id: str
    granted: access.MachineAccess

    async def grant(self) -> access.MachineGrant:
        grants = await self.listed(operation_id=self.held.operation_id)
        return next(grant for grant in grants if grant.grant_id == self.granted.grant_id)

    async def listed(self, **query: str) -> list[access.MachineGrant]:
        return (await self.world.call(access.GRANT_LIST, query=query)).items

    async def revoke(self, reason: str = "the laptop was stolen") -> access.MachineGrant:
        return await self.world.call(
            access.GRANT_REVOKE, access.RevokeGrant(reason=reason), grant_id=self.granted.grant_id
        )

    async def refused_serials(self) -> list[str] | None:
        """Return the serials of the node's next task, which it must refuse; None: it has no such task."""
        task = await self.world.next_task(self.node)
        if not task or task["type"] != "ssh.trust":
            return None
        return [str(serial) for serial in task["params"]["revoked_serials"]]

    async def pass_time(self, seconds: int) -> None:
        """Let time pass while the loops run, as they do in a server."""
        for _ in range(seconds):
            self.world.clock.forward(1)
            await self.world.sweep()
            await grants_reconcile.sweep(self.world.site)


async def _allocation(world: World, name: str) -> tuple[Node, str]:
    node = await world.node(name)
    (created,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))).items
    await world.finish_task(node)
    return node, created.allocation_id


@pytest.fixture
async def entered(world: World) -> Entered:
    await world.entitled_app(**CLUSTERED)
    token = await world.service_account()
    (node, head), (_, hand) = await _allocation(world, "n1"), await _allocation(world, "n2")
    inputs = {"head_allocation": head, "hand_allocations": [hand]}
    body = instances.DeployInstance(name="one", app_slug="toy", topology="pair", inputs=inputs)
    await world.call(instances.INSTANCE_CREATE, body)
    held = Held(world, token, await world.claim(token, lease_s=15))
    return Entered(world, held, node, head, await held.enter(head))


async def test_the_list_shows_who_may_enter_which_machine_for_which_operation_until_when(entered: Entered) -> None:
    (grant,) = await entered.listed()
    assert (grant.allocation_id, grant.node_name, grant.operation_id) == (
        entered.allocation_id,
        "n1",
        entered.held.operation_id,
    )
    assert (grant.actor_type, grant.actor_name, grant.state) == ("service_account", "controller", "active")
    assert (grant.serial, grant.expires_at) == (entered.granted.serial, entered.granted.expires_at)
    assert await entered.listed(allocation_id="alloc_none") == []
    await entered.revoke()
    assert [len(await entered.listed(state=state)) for state in ("active", "ended")] == [0, 1]


async def test_a_dry_run_shows_what_would_be_granted_and_no_certificate(world: World, entered: Entered) -> None:
    """A certificate would open the machine, and no one could revoke what is not on the list."""
    body = {"public_key": _PUBLIC_KEY, "as": "root"}
    where = {"query": {"dry_run": "true"}, "allocation_id": entered.allocation_id}
    shown = await world.call(access.MACHINE_ACCESS, body, **where)
    assert (shown.principal, shown.certificate) == (entered.allocation_id, "")
    assert len(await entered.listed()) == 1
    with pytest.raises(errors.ValidationFailed, match="not an OpenSSH public key"):
        await world.call(access.MACHINE_ACCESS, {**body, "public_key": "junk"}, **where)


async def test_a_certificate_has_one_principal_one_source_and_is_valid_for_ten_minutes(entered: Entered) -> None:
    certificate = load_ssh_public_identity(entered.granted.certificate.encode())
    assert isinstance(certificate, SSHCertificate)
    assert certificate.valid_principals == [entered.allocation_id.encode()]
    assert certificate.critical_options == {b"source-address": b"127.0.0.1"}
    assert str(certificate.serial) == (await entered.grant()).serial
    assert certificate.valid_before - entered.world.clock().timestamp() == 600
    assert entered.held.operation_id in certificate.key_id.decode()


async def test_a_revoked_grant_is_sent_to_the_node_and_enforced_when_the_node_has_it(entered: Entered) -> None:
    revoked = await entered.revoke()
    assert (revoked.state, revoked.end_reason, revoked.enforced_at) == ("ended", "the laptop was stolen", None)
    assert await entered.refused_serials() == [entered.granted.serial]
    assert await entered.revoke("again") == revoked
    await entered.world.finish_task(entered.node)
    await grants_reconcile.sweep(entered.world.site)
    assert (await entered.grant()).enforced_at == entered.world.clock()
    assert await entered.refused_serials() is None
    event = (await entered.world.call(events.EVENT_LIST)).items[-1]
    assert (event.type, event.payload["reason"]) == ("access.machine.ended", "the laptop was stolen")


async def test_a_node_whose_grant_cannot_be_read_does_not_hold_back_the_others(world: World) -> None:
    grants = []
    for name in ("n1", "n2", "n3"):
        granted = await world.machine_access(world.token, (await world.allocation(name)).allocation_id)
        grants.append(
            await world.call(access.GRANT_REVOKE, access.RevokeGrant(reason="over"), grant_id=granted.grant_id)
        )
        await world.finish_task(world.nodes[name])
    unreadable = min(grants, key=lambda grant: grant.node_id)

    async def damage(tx: db.Tx) -> None:
        await tx.run("UPDATE machine_grants SET document = '{' WHERE grant_id = $1", unreadable.grant_id)

    await world.site.database.write(damage)
    with structlog.testing.capture_logs() as logs:
        await grants_reconcile.sweep(world.site)
    left = await world.site.database.reader.all("SELECT grant_id FROM machine_grants WHERE is_enforced = 0")
    assert [row[0] for row in left] == [unreadable.grant_id]
    assert [(entry["event"], entry["node_id"]) for entry in logs if entry["log_level"] == "error"] == [
        ("machine_access.follow_up_failed", unreadable.node_id)
    ]


async def test_the_node_always_gets_the_complete_set(entered: Entered) -> None:
    again = await entered.held.enter(entered.allocation_id)
    await entered.revoke()
    await entered.world.finish_task(entered.node)
    await entered.world.call(access.GRANT_REVOKE, access.RevokeGrant(reason="both"), grant_id=again.grant_id)
    assert await entered.refused_serials() == sorted([entered.granted.serial, again.serial], key=int)


async def test_serials_are_sent_again_until_the_node_has_them(entered: Entered) -> None:
    world = entered.world
    await entered.revoke()
    for _ in range(3):
        await world.finish_task(entered.node, "failed")
        await entered.pass_time(1)
        assert await entered.refused_serials() is None
        await entered.pass_time(15)
        assert await entered.refused_serials() == [entered.granted.serial]
        assert (await entered.grant()).enforced_at is None
    await world.finish_task(entered.node)
    await entered.pass_time(1)
    assert (await entered.grant()).enforced_at == world.clock()


async def test_a_node_refuses_a_serial_for_an_hour_after_its_certificate_expired(entered: Entered) -> None:
    await entered.revoke()
    await entered.world.finish_task(entered.node)
    entered.world.clock.forward(600 + 3599)
    later = await entered.world.machine_access(await entered.world.sign_in("admin"), entered.allocation_id)
    entered.world.token = await entered.world.sign_in("admin")
    await entered.world.call(access.GRANT_REVOKE, access.RevokeGrant(reason="new"), grant_id=later.grant_id)
    entered.node.token = await entered.world.node_login(entered.node)
    assert sorted(await entered.refused_serials() or []) == sorted([entered.granted.serial, later.serial])


async def test_serials_are_deleted_once_their_certificate_is_expired_on_every_clock(entered: Entered) -> None:
    await entered.revoke()
    await entered.world.finish_task(entered.node)
    entered.world.clock.forward(600 + 3600)
    later = await entered.world.machine_access(await entered.world.sign_in("admin"), entered.allocation_id)
    entered.world.token = await entered.world.sign_in("admin")
    await entered.world.call(access.GRANT_REVOKE, access.RevokeGrant(reason="new"), grant_id=later.grant_id)
    entered.node.token = await entered.world.node_login(entered.node)
    assert await entered.refused_serials() == [later.serial]


async def test_a_grant_is_active_while_its_lease_is_renewed(entered: Entered) -> None:
    for _ in range(20):
        await entered.pass_time(5)
        await entered.held.heartbeat()
    assert (await entered.grant()).state == "active"
    renewed = await entered.held.enter(entered.allocation_id)
    assert renewed.expires_at > entered.granted.expires_at
    entered.world.clock.forward(600)
    await entered.held.heartbeat()
    await grants_reconcile.sweep(entered.world.site)
    assert {grant.state for grant in await entered.listed()} == {"active"}, (
        "sessions outlive the certificate, not the lease"
    )


async def _newer_claim(entered: Entered) -> None:
    entered.world.clock.forward(16)
    await entered.world.claim(entered.held.token)


async def _operation_fails(entered: Entered) -> None:
    await entered.held.fail()


async def _lease_runs_out(entered: Entered) -> None:
    for _ in range(12):
        await entered.pass_time(5)
        await entered.held.heartbeat()
    await entered.pass_time(16)


async def _account_disabled(entered: Entered) -> None:
    (account,) = (await entered.world.call(identity.SERVICE_ACCOUNT_LIST)).items
    await entered.world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=account.service_account_id)


async def _account_deleted(entered: Entered) -> None:
    (account,) = (await entered.world.call(identity.SERVICE_ACCOUNT_LIST)).items
    await entered.world.call(identity.SERVICE_ACCOUNT_DELETE, service_account_id=account.service_account_id)


async def _entitlement_gone(entered: Entered) -> None:
    await entered.world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=False), app_slug="toy")


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (_newer_claim, "a newer claim holds the operation"),
        (_operation_fails, "the operation is failed"),
        (_lease_runs_out, "the lease of the operation ran out"),
        (_account_disabled, "the service account is disabled"),
        (_account_deleted, "the service account is deleted"),
        (_entitlement_gone, "the project may no longer deploy toy"),
    ],
)
async def test_a_controllers_access_ends_with_what_it_rests_on(
    entered: Entered, happens: Callable[[Entered], Awaitable[None]], reason: str
) -> None:
    await happens(entered)
    await grants_reconcile.sweep(entered.world.site)
    ended = await entered.grant()
    assert (ended.state, ended.end_reason, ended.ended_by) == ("ended", reason, "platform")
    assert await entered.refused_serials() == [entered.granted.serial]
    rows = (await entered.world.call(audit.AUDIT_LIST, query={"action": "access.machine.end"})).items
    assert [row.details["reason"] for row in rows] == [reason]
    if happens is _lease_runs_out:
        await entered.world.claim(entered.held.token)
    with pytest.raises((errors.LeaseLost, errors.TokenInvalid, errors.NotEntitled)):
        await entered.held.enter(entered.allocation_id)


async def test_access_to_a_released_allocation_ends_and_is_refused(world: World) -> None:
    _, allocation_id = await _allocation(world, "n1")
    granted = await world.machine_access(world.token, allocation_id)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation_id)
    await grants_reconcile.sweep(world.site)
    (ended,) = (await world.call(access.GRANT_LIST)).items
    assert (ended.serial, ended.end_reason) == (granted.serial, "the allocation is releasing")
    with pytest.raises(errors.Conflict, match="only an active one"):
        await world.machine_access(world.token, allocation_id)


async def test_a_process_that_has_just_started_regards_no_lease_as_lost(entered: Entered) -> None:
    """It could not receive the heartbeats that were sent while it was down."""
    entered.world.clock.forward(120)
    await grants_reconcile.sweep(entered.world.site)
    assert (await entered.grant()).state == "active"
    await entered.held.heartbeat()
    await entered.pass_time(10)
    assert (await entered.grant()).state == "active"


async def test_without_the_entitlement_what_runs_can_still_be_managed(world: World, entered: Entered) -> None:
    await entered.held.carry_out()
    drain = {"kind": "drain", "member_ids": [entered.held.member_ids[0]], "reason": "maintenance"}
    await world.call(instances.MEMBER_OPERATION_CREATE, drain, instance_id=entered.held.operation.instance_id)
    await _entitlement_gone(entered)
    held = Held(world, entered.held.token, await world.claim(entered.held.token))
    granted = await held.enter(entered.allocation_id)
    await grants_reconcile.sweep(world.site)
    active = (await world.call(access.GRANT_LIST, query={"state": "active"})).items
    assert [grant.serial for grant in active] == [granted.serial]


async def test_a_persons_access_ends_with_their_role_and_with_them(world: World) -> None:
    _, allocation_id = await _allocation(world, "n1")
    ada = await world.person("ada")
    for taken in (_take_role, _disable_person):
        binding = await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": ada.user_id, "role": "project_admin"})
        granted = await world.machine_access(ada.token, allocation_id)
        await grants_reconcile.sweep(world.site)
        assert (await _grant(world, granted.grant_id)).state == "active"
        reason = await taken(world, ada.user_id, binding.binding_id)
        await grants_reconcile.sweep(world.site)
        ended = await _grant(world, granted.grant_id)
        assert (ended.state, ended.end_reason, ended.operation_id) == ("ended", reason, "")


async def test_a_persons_session_has_an_end_of_its_own(world: World) -> None:
    _, allocation_id = await _allocation(world, "n1")
    granted = await world.machine_access(world.token, allocation_id)
    world.clock.forward(8 * 3600)
    await grants_reconcile.sweep(world.site)
    world.token = await world.sign_in("admin")
    assert (await _grant(world, granted.grant_id)).end_reason == "its time is over"


async def test_callers_without_the_right_are_refused_in_every_way(world: World, entered: Entered) -> None:
    held = entered.held
    (_, foreign) = await _allocation(world, "foreign")
    with pytest.raises(errors.PermissionDenied):
        await held.enter(foreign)
    with pytest.raises(errors.PermissionDenied):
        await world.machine_access(held.token, entered.allocation_id)
    for epoch in (0, 2, 99):
        with pytest.raises(errors.LeaseLost):
            await world.machine_access(held.token, entered.allocation_id, operation_id=held.operation_id, epoch=epoch)
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    sibling = await world.call(identity.PROJECT_CREATE, {"name": "sibling"}, org_id=org_id)
    token = await world.service_account("sibling", sibling.project_id)
    body = {"public_key": _PUBLIC_KEY, "operation_id": held.operation_id, "epoch": held.claim.epoch}
    requests: list[tuple[Endpoint[Any, Any], Any]] = [
        (access.MACHINE_ACCESS, body),
        (access.GRANT_REVOKE, {"reason": "mine now"}),
    ]
    for project_id in (sibling.project_id, world.project_id):
        where: dict[str, Any] = {"token": token, "project_id": project_id}
        for endpoint, content in requests:
            answer = await world.send(
                endpoint, content, allocation_id=entered.allocation_id, grant_id=entered.granted.grant_id, **where
            )
            assert answer.status_code in (403, 404)
    assert [grant.serial for grant in await entered.listed()] == [entered.granted.serial]


_PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl"


async def _grant(world: World, grant_id: str) -> access.MachineGrant:
    grants = (await world.call(access.GRANT_LIST)).items
    return next(grant for grant in grants if grant.grant_id == grant_id)


async def _take_role(world: World, _: str, binding_id: str) -> str:
    await world.call(bindings.PROJECT_BINDING_DELETE, binding_id=binding_id)
    return "the person may no longer log in to machines of the project as root"


async def _disable_person(world: World, user_id: str, _: str) -> str:
    await world.call(users.USER_DISABLE, user_id=user_id)
    return "the person is disabled"
