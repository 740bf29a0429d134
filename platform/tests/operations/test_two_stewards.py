"""Two processes of one controller look after the same instance: at any time only one of them counts."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from gpuaas_contract import capacity, errors, identity, instances, operations, runtime, stewardships
from gpuaas_contract.posix import PosixPerson
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.operations import fence, reconcile
from gpuaas_sdk import machine
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import ReportedCondition
from gpuaas_sdk.controller.reconciliation import Reconciliation, Watch
from gpuaas_sdk.controller.stewardships import Stewardships
from gpuaas_sdk.testing import serving
from platform_world import World
from scripted_controller import Cluster, take_exit, with_hands

ROUNDS = 100
LEASE_S = 1


@dataclass
class Replica:
    """One process of the controller, made of the parts of the kit. Its clock stops while it is paused, as that
    of a machine does that was suspended: so it believes in its lease."""

    name: str
    client: Client
    cluster: Cluster
    accepted: list[tuple[int, int, str]]
    """Revision of the instance after each accepted report, the epoch, and who reported."""
    now_s: float = 0
    stewardships: Stewardships = field(init=False)

    def __post_init__(self) -> None:
        self.stewardships = Stewardships(
            self.client,
            app_slug="toy",
            project_id=self.cluster.world.project_id,
            name=self.name,
            lease_s=LEASE_S,
            clock=lambda: self.now_s,
        )

    @property
    def holds(self) -> bool:
        return self.stewardships.get(self.cluster.instance_id) is not None

    async def report(self, about: instances.Instance, text: str) -> bool:
        """Report as the health handler does, and return whether the platform accepted it."""
        held = self.stewardships.get(self.cluster.instance_id)
        if held is None:
            return False
        epoch = held.epoch
        look = Reconciliation(
            self.client,
            self.stewardships,
            self.name,
            about,
            Watch(instance=about),
            connect=machine.connect,
            people=_no_people,
            wake=lambda: None,
        )
        try:
            await look.report([ReportedCondition(type="Seen", status="true", message=f"{self.name}: {text}")])
        except errors.LeaseLost:
            return False
        self.accepted.append((look.instance.revision, epoch, self.name))
        return True


async def _no_people() -> tuple[PosixPerson, ...]:
    return ()


async def test_never_do_two_processes_report_under_one_epoch_and_a_paused_one_is_refused(world: World) -> None:
    cluster, accepted = await Cluster.running(world, hands=1), list[tuple[int, int, str]]()
    application = http.application(world.site, server.DOMAINS)
    async with serving(application) as address, Client(address, BearerToken(cluster.controller.token)) as client:
        active, other = (Replica(name, client, cluster, accepted) for name in ("one", "two"))
        await active.stewardships.renew()
        stale = 0
        for number in range(ROUNDS):
            about = await cluster.instance()
            assert await active.report(about, f"round {number}")
            assert not other.holds
            # `active` is paused past its lease, and resumes while `other` takes over.
            world.clock.forward(LEASE_S)
            other.now_s += LEASE_S
            late, _ = await asyncio.gather(active.report(about, f"late in round {number}"), other.stewardships.renew())
            assert (late, other.holds) == (False, True)
            both = await asyncio.gather(active.report(about, "stale"), other.report(about, f"taken in round {number}"))
            stale += 1 - both[0]
            assert list(both) == [False, True]
            active.now_s = other.now_s
            await active.stewardships.renew()
            assert not active.holds
            active, other = other, active
        world.site.hub.close()
    by_epoch = defaultdict(set)
    for _, epoch, name in accepted:
        by_epoch[epoch].add(name)
    assert {len(names) for names in by_epoch.values()} == {1}
    assert (len(by_epoch), stale) == (ROUNDS + 1, ROUNDS)
    assert [epoch for _, epoch, _ in sorted(accepted)] == sorted(epoch for _, epoch, _ in accepted)


@pytest.fixture
async def watched(world: World) -> Cluster:
    """A running instance that no controller has looked at since its stewardship was taken."""
    cluster = await Cluster.running(world, hands=1)
    await renew(cluster)
    return cluster


async def renew(cluster: Cluster, epoch: int = 0, **look: object) -> int:
    held = [{"instance_id": cluster.instance_id, "epoch": epoch, **look}] if epoch else []
    body = {"app_slug": "toy", "holder": "one", "held": held, "take_max": 10, "lease_s": 30}
    (taken,) = (await cluster.world.call(stewardships.RENEW, body, token=cluster.controller.token)).held
    return taken.epoch


async def pass_time(cluster: Cluster, seconds: int) -> None:
    """Let time pass while the loops run, as they do in a server."""
    for _ in range(seconds):
        cluster.world.clock.forward(1)
        await cluster.world.sweep()
        await reconcile.sweep(cluster.world.site)


async def seen(cluster: Cluster) -> tuple[str, str]:
    """The status of the instance, and of its condition `Observed`."""
    instance = await cluster.instance()
    return instance.status, next((item.status for item in instance.conditions if item.type == "Observed"), "")


async def test_an_instance_without_a_steward_gets_a_condition_until_a_controller_looks(watched: Cluster) -> None:
    await pass_time(watched, 120)  # the platform could have received renewals for two minutes
    epoch = await renew(watched, 1)
    await pass_time(watched, 29 + 60)
    assert await seen(watched) == ("running", "")
    await pass_time(watched, 3)
    assert await seen(watched) == ("degraded", "false")
    assert "No controller has looked at the instance since" in (await watched.instance()).status_reason
    epoch = await renew(watched)
    assert await seen(watched) == ("degraded", "false"), "it was taken, and no controller has looked yet"
    await renew(watched, epoch, observed_at=watched.world.clock().isoformat())
    assert await seen(watched) == ("running", "true")
    payloads = await watched.event_payloads("apps.condition.changed")
    assert [(item["status"], item["was"]) for item in payloads if item["type"] == "Observed"] == [
        ("false", ""),
        ("true", "false"),
    ]


async def test_after_a_break_of_the_platform_no_controller_is_accused(watched: Cluster) -> None:
    watched.world.clock.forward(600)
    await pass_time(watched, 100)
    assert await seen(watched) == ("running", "")
    await pass_time(watched, 25)
    assert await seen(watched) == ("degraded", "false")


async def test_another_operator_takes_the_stewardship_at_once(watched: Cluster) -> None:
    other = await watched.world.service_account("other", apps=["toy"])
    accounts = (await watched.world.call(identity.SERVICE_ACCOUNT_LIST)).items
    account_id = next(account.service_account_id for account in accounts if account.name == "other")
    body = {"operator_service_account_id": account_id, "reason": "another team"}
    await watched.world.call(instances.OPERATOR_SET, body, instance_id=watched.instance_id)
    request = {"app_slug": "toy", "holder": "one", "take_max": 10}
    former = await watched.world.call(stewardships.RENEW, request, token=watched.controller.token)
    assert former.held == []
    (taken,) = (await watched.world.call(stewardships.RENEW, request, token=other)).held
    assert taken.epoch == 3


async def test_after_a_restore_the_steward_of_before_is_refused_and_can_take_it_again(watched: Cluster) -> None:
    await watched.world.site.database.write(fence.raise_epochs)
    report = {"holder": "one", "observed_revision": 1, "epoch": 1}
    where = {"instance_id": watched.instance_id}
    with pytest.raises(errors.LeaseLost):
        await watched.world.call(runtime.RUNTIME_REPORT, report, token=watched.controller.token, **where)
    assert await renew(watched) > 1_000_000


async def test_a_deleted_instance_has_no_steward(watched: Cluster) -> None:
    await watched.change("decommission")
    await watched.controller.carry_out()
    held = [{"instance_id": watched.instance_id, "epoch": 1}]
    body = {"app_slug": "toy", "holder": "one", "held": held, "take_max": 10}
    answer = await watched.world.call(stewardships.RENEW, body, token=watched.controller.token)
    assert (answer.held, answer.lost) == ([], [watched.instance_id])


async def test_the_breaker_and_the_disruption_budget_limit_what_a_steward_requests(world: World) -> None:
    cluster = await Cluster.running(world, hands=2, **with_hands(unavailable_max=1, breaker={"failures": 1}))
    epoch, (first, second) = await renew(cluster), await cluster.hands()

    async def request(member_id: str) -> operations.Operation:
        body = {"epoch": epoch, "kind": "repair", "member_ids": [member_id], "reason": "no answer"}
        where = {"instance_id": cluster.instance_id}
        return await world.call(stewardships.OPERATION_REQUEST, body, token=cluster.controller.token, **where)

    await request(first)
    with pytest.raises(errors.DisruptionBudget):
        await request(second)
    await (await cluster.controller.take()).complete()
    await cluster.add(*await cluster.machines(1))
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning", "failed")
    await held.complete()
    with pytest.raises(errors.CircuitOpen):
        await request(held.member_ids[0])


async def test_a_steward_of_another_app_or_account_is_refused(watched: Cluster) -> None:
    stranger = await watched.world.service_account("stranger", apps=[])
    body = {"app_slug": "toy", "holder": "one", "take_max": 10}
    with pytest.raises(errors.PermissionDenied):
        await watched.world.call(stewardships.RENEW, body, token=stranger)
    with pytest.raises(errors.AppUnknown):
        await watched.world.call(stewardships.RENEW, {**body, "app_slug": "nothing"}, token=watched.controller.token)
    other = await watched.world.service_account("other", apps=["toy"])
    report = {"holder": "one", "observed_revision": 1, "epoch": 1}
    where = {"instance_id": watched.instance_id}
    with pytest.raises(errors.PermissionDenied, match="Another service account holds"):
        await watched.world.call(runtime.RUNTIME_REPORT, report, token=other, **where)


async def _replaceable(world: World) -> Cluster:
    """A cluster with a budget of one hand and a free machine; the node of its first hand is lost."""
    steward = {"requests": ["repair", "replace"], "replace_input": "speed"}
    cluster = await Cluster.running(world, hands=2, **with_hands(unavailable_max=1), steward=steward)
    await cluster.change("reconfigure", inputs={"speed": 15})
    await cluster.controller.carry_out()
    await cluster.machines(1, "free")
    await cluster.lose((await cluster.hands())[0])
    return cluster


async def _request_replace(cluster: Cluster, epoch: int) -> operations.Operation:
    body = {"epoch": epoch, "kind": "replace", "member_ids": (await cluster.hands())[:1], "reason": "no answer"}
    where = {"instance_id": cluster.instance_id}
    return await cluster.world.call(stewardships.OPERATION_REQUEST, body, token=cluster.controller.token, **where)


async def test_holds_and_the_budget_also_limit_the_retry_of_a_replace_that_a_steward_requested(world: World) -> None:
    cluster = await _replaceable(world)
    first, second = await cluster.hands()
    failed = await _request_replace(cluster, await renew(cluster))
    await (await cluster.controller.take()).fail()
    await cluster.hold(first, "no_removal", ttl_s=60)
    with pytest.raises(errors.MemberHeld):
        await take_exit(world, failed, "retry")
    draining = await cluster.operate("drain", second)
    world.clock.forward(61)
    with pytest.raises(errors.DisruptionBudget):
        await take_exit(world, failed, "retry")
    await take_exit(world, draining, "cancel")
    assert (await take_exit(world, failed, "retry")).status == "accepted"


async def test_a_machine_that_a_person_is_logged_in_to_is_no_spare(world: World) -> None:
    cluster = await _replaceable(world)
    epoch = await renew(cluster)
    free = await world.call(capacity.ALLOCATION_LIST, query={"free": "true"})
    await world.machine_access(world.token, free.items[0].allocation_id)
    with pytest.raises(errors.NoSpare):
        await _request_replace(cluster, epoch)
    [newer] = await cluster.machines(1, "newer")
    assert (await _request_replace(cluster, epoch)).targets[0].allocation_id == newer


async def test_the_newest_free_machine_is_the_spare(world: World) -> None:
    cluster = await _replaceable(world)
    [newest] = await cluster.machines(1, "newest")
    assert (await _request_replace(cluster, await renew(cluster))).targets[0].allocation_id == newest
