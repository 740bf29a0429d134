"""Observer access: the steward of an instance logs in to its machines as a user that can only read."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate
from gpuaas_contract import access, audit, capacity, errors, identity, node, stewardships
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from platform_world import World, ssh_public_key
from scripted_controller import Cluster

OBSERVER = "gpu-1-ro"


@dataclass
class Steward:
    """A controller that looks after a running instance."""

    cluster: Cluster
    held: stewardships.Stewardship
    allocation_id: str
    """The machine of the instance's head."""

    @property
    def world(self) -> World:
        return self.cluster.world

    async def renew(self, holder: str = "one", **more: object) -> stewardships.Stewardships:
        held = [] if holder != "one" else [{"instance_id": self.held.instance_id, "epoch": self.held.epoch}]
        body = {"app_slug": "toy", "holder": holder, "held": held, "take_max": 10, **more}
        return await self.world.call(stewardships.RENEW, body, token=self.cluster.controller.token)

    async def observe(self, allocation_id: str = "", epoch: int = 0, **more: Any) -> access.MachineAccess:
        body = {
            "public_key": ssh_public_key(Ed25519PrivateKey.generate()),
            "instance_id": self.held.instance_id,
            "epoch": epoch or self.held.epoch,
            **more,
        }
        where = {"allocation_id": allocation_id or self.allocation_id}
        return await self.world.call(access.MACHINE_ACCESS, body, token=self.cluster.controller.token, **where)

    async def observed(self) -> access.MachineAccess:
        """Observer access to a machine whose agent has made the user for it."""
        with pytest.raises(errors.AccountPending):
            await self.observe()
        await self.answer_provision({"observer_user": OBSERVER})
        return await self.observe()

    async def answer_provision(self, result: dict[str, str]) -> None:
        machine = self.world.nodes["one-head"]
        task = await self.world.next_task(machine)
        assert task is not None
        assert task["type"] == "allocation.provision"
        body = {"status": "succeeded", "result": result}
        await self.world.call(node.TASK_RESULT, body, token=machine.token, task_id=task["task_id"])

    async def grant(self, grant_id: str) -> access.MachineGrant:
        grants = (await self.world.call(access.GRANT_LIST)).items
        return next(grant for grant in grants if grant.grant_id == grant_id)

    async def pass_time(self, seconds: int, renew: bool = True) -> None:
        for second in range(seconds):
            self.world.clock.forward(1)
            if renew and second % 10 == 0:
                await self.renew(take_max=0)
            await self.world.sweep()
            await grants_reconcile.sweep(self.world.site)


@pytest.fixture
async def steward(world: World) -> Steward:
    cluster = await Cluster.running(world, hands=1)
    body = {"app_slug": "toy", "holder": "one", "take_max": 10}
    (held,) = (await world.call(stewardships.RENEW, body, token=cluster.controller.token)).held
    head = next(member for member in (await cluster.members()).values() if member.component_key == "head")
    return Steward(cluster, held, head.allocation_id)


async def test_a_steward_logs_in_as_the_observer_and_it_is_on_record(steward: Steward) -> None:
    granted = await steward.observed()
    assert (granted.user, granted.principal) == (OBSERVER, f"observer/{steward.allocation_id}")
    certificate = load_ssh_public_identity(granted.certificate.encode())
    assert isinstance(certificate, SSHCertificate)
    assert (certificate.valid_principals, certificate.extensions) == ([granted.principal.encode()], {})
    grant = await steward.grant(granted.grant_id)
    assert (grant.access, grant.instance_id, grant.operation_id, grant.epoch, grant.state) == (
        "observer",
        steward.held.instance_id,
        "",
        steward.held.epoch,
        "active",
    )
    rows = (await steward.world.call(audit.AUDIT_LIST)).items
    (row,) = [row for row in rows if row.action == "access.machine.grant" and row.details.get("access") == "observer"]
    assert row.result == "success"


async def test_observer_access_needs_the_stewardship_and_a_machine_of_the_instance(steward: Steward) -> None:
    await steward.observed()
    with pytest.raises(errors.LeaseLost):
        await steward.observe(epoch=steward.held.epoch + 1)
    spare = (await steward.world.allocation("spare")).allocation_id
    with pytest.raises(errors.PermissionDenied, match="does not belong"):
        await steward.observe(spare)
    wrongs: list[dict[str, Any]] = [{"operation_id": "op_1"}, {"as": "root"}]
    for wrong in wrongs:
        with pytest.raises(errors.ValidationFailed):
            await steward.observe(**wrong)
    body = {"public_key": ssh_public_key(Ed25519PrivateKey.generate()), "instance_id": steward.held.instance_id}
    with pytest.raises(errors.PermissionDenied):
        await steward.world.call(access.MACHINE_ACCESS, body, allocation_id=steward.allocation_id)


async def test_a_newer_certificate_replaces_the_one_before(steward: Steward) -> None:
    first, second = await steward.observed(), await steward.observe()
    assert (await steward.grant(first.grant_id)).end_reason == "a newer certificate replaces it"
    assert (await steward.grant(second.grant_id)).state == "active"


async def test_an_agent_that_makes_no_observer_is_named_with_the_fix(steward: Steward) -> None:
    with pytest.raises(errors.AccountPending):
        await steward.observe()
    await steward.answer_provision({})
    steward.world.clock.forward(29)
    await steward.renew()
    steward.world.clock.forward(29)
    await steward.renew()
    with pytest.raises(errors.AccountPending):
        await steward.observe()
    steward.world.clock.forward(2)
    with pytest.raises(errors.AgentTooOld, match="one-head"):
        await steward.observe()
    assert await steward.world.next_task(steward.world.nodes["one-head"]) is None


async def _taken_over(steward: Steward) -> None:
    steward.world.clock.forward(31)
    assert (await steward.renew("two")).held


async def _silent(steward: Steward) -> None:
    await steward.pass_time(95, renew=False)


async def _unbound(steward: Steward) -> None:
    accounts = (await steward.world.call(identity.SERVICE_ACCOUNT_LIST)).items
    about = {"service_account_id": next(account.service_account_id for account in accounts if "toy" in account.apps)}
    await steward.world.call(identity.SERVICE_ACCOUNT_BIND, {"apps": []}, **about)


async def _released(steward: Steward) -> None:
    where = {"allocation_id": steward.allocation_id}
    await steward.world.call(capacity.ALLOCATION_RELEASE_USED, {"reason": "needed elsewhere"}, **where)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (_taken_over, "another controller looks after the instance"),
        (_silent, "the stewardship of the instance expired"),
        (_unbound, "may no longer log in"),
        (_released, "the allocation is releasing"),
    ],
)
async def test_observer_access_ends_with_its_reason(
    steward: Steward, end: Callable[[Steward], Awaitable[None]], why: str
) -> None:
    granted = await steward.observed()
    await steward.pass_time(70)
    assert (await steward.grant(granted.grant_id)).state == "active"
    await end(steward)
    await grants_reconcile.sweep(steward.world.site)
    ended = await steward.grant(granted.grant_id)
    assert (ended.state, why in ended.end_reason) == ("ended", True), ended.end_reason
