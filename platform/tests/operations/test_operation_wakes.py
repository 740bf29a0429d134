"""A waiter is woken by the change itself. Polling would find it too, only later: no poll may time out here."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest
from gpuaas_contract import identity, instances, operations
from gpuaas_platform.kit import hub
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.operations import claim
from platform_world import World
from scripted_controller import Cluster, Controller, Held, take_exit
from server_process import until

Change = Callable[[Cluster], Awaitable[object]]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """The permission of a caller who waits is checked less often than a test takes."""
    return dataclasses.replace(settings, stream_recheck_s=hub.WAIT_MAX_S)


@pytest.fixture
def timeouts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits that ended without a wake-up. Claims look for leases that ran out less often than a test takes."""
    ended: list[float] = []
    real_wait = hub.Listener.wait

    async def wait(listener: hub.Listener, timeout_s: float) -> bool:
        is_woken = await real_wait(listener, timeout_s)
        if not is_woken:
            ended.append(timeout_s)
        return is_woken

    monkeypatch.setattr(hub.Listener, "wait", wait)
    monkeypatch.setattr(claim, "_LEASE_CHECK_S", hub.WAIT_MAX_S)
    return ended


async def waiting(world: World) -> None:
    """Return when a long poll has begun to wait."""
    await until(lambda: world.site.hub.waiting == 1)


async def _request(cluster: Cluster) -> object:
    return await cluster.operate("drain", (await cluster.hands())[0])


async def _retry(cluster: Cluster) -> object:
    (failed,) = [operation for operation in await _listed(cluster) if operation.status == "failed"]
    return await take_exit(cluster.world, failed, "retry")


async def _compensate(cluster: Cluster) -> object:
    (failed,) = [operation for operation in await _listed(cluster) if operation.status == "failed"]
    return await take_exit(cluster.world, failed, "compensate")


async def _hand_over(cluster: Cluster) -> object:
    accounts = await cluster.world.call(identity.SERVICE_ACCOUNT_LIST)
    (account_id,) = [account.service_account_id for account in accounts.items if account.name == "second"]
    body = {"operator_service_account_id": account_id, "reason": "the first is gone"}
    return await cluster.world.call(instances.OPERATOR_SET, body, instance_id=cluster.instance_id)


async def _listed(cluster: Cluster) -> list[operations.Operation]:
    return (await cluster.world.call(operations.OPERATION_LIST)).items


@pytest.mark.parametrize("change", [_request, _retry, _compensate, _hand_over])
async def test_a_controller_that_waits_for_work_is_woken_by_it(
    world: World, timeouts: list[float], change: Change
) -> None:
    cluster = await Cluster.running(world)
    if change in (_retry, _compensate):
        await _request(cluster)
        await (await cluster.controller.take()).fail()
    if change is _hand_over:
        await _request(cluster)
        await cluster.controller.take()
    second = await Controller.start(world, "second")
    claimed = asyncio.create_task(second.claim(wait_s=30))
    await waiting(world)
    await change(cluster)
    assert (await claimed).operation is not None
    assert timeouts == []


async def test_a_person_who_watches_an_operation_is_woken_by_its_claim(world: World, timeouts: list[float]) -> None:
    cluster = await Cluster.running(world)
    await _request(cluster)
    await _watch(cluster, cluster.controller.take)
    assert timeouts == []


Report = Callable[[Held], Awaitable[object]]


async def _step(held: Held) -> object:
    return await held.step("wait", "running")


async def _member(held: Held) -> object:
    return await held.report(held.member_ids[0], "draining")


async def _cancel(held: Held) -> object:
    return await take_exit(held.world, held.operation, "cancel")


async def _fail(held: Held) -> object:
    return await held.fail()


@pytest.mark.parametrize("report", [_step, _member, _cancel, _fail])
async def test_a_person_who_watches_an_operation_is_woken_by_its_change(
    world: World, timeouts: list[float], report: Report
) -> None:
    cluster = await Cluster.running(world)
    await _request(cluster)
    held = await cluster.controller.take()
    await _watch(cluster, lambda: report(held))
    assert timeouts == []


async def _watch(cluster: Cluster, change: Callable[[], Awaitable[object]]) -> None:
    """Wait for the next revision of the latest operation, and make the change while the watcher waits."""
    world, watched = cluster.world, (await _listed(cluster))[-1]
    query = {"wait_s": 30, "revision": watched.revision}
    latest = asyncio.create_task(world.call(operations.OPERATION_GET, query=query, operation_id=watched.operation_id))
    await waiting(world)
    await change()
    assert (await latest).revision > watched.revision
