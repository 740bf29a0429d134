"""A holder that was thought dead and comes back cannot do harm: every write under an old epoch is refused."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from gpuaas_contract import errors, events, identity, instances, runtime, secrets
from gpuaas_platform.operations import reconcile
from platform_world import World
from scripted_controller import DEADLINE_S, Cluster, Controller, Held, exits, take_exit

STALE_WRITES = 300

Write = Callable[[], Awaitable[Any]]


async def test_a_holder_that_was_replaced_has_none_of_300_stale_writes_accepted(world: World) -> None:
    cluster = await Cluster.requested(world)
    paused = await cluster.controller.take(lease_s=5)
    delivery = (await paused.issue()).delivery_id
    world.clock.forward(6)
    successor = await (await Controller.start(world, "successor")).take()
    assert successor.claim.epoch == paused.claim.epoch + 1
    writes = _writes(paused, delivery)
    before = await _everything(cluster, paused)
    refusals = await asyncio.gather(
        *(writes[number % len(writes)]() for number in range(STALE_WRITES)), return_exceptions=True
    )
    assert len(refusals) == STALE_WRITES
    assert {type(refused) for refused in refusals} == {errors.LeaseLost}
    assert await _everything(cluster, paused) == before
    assert (await successor.open(delivery)).value
    assert (await successor.carry_out()).status == "succeeded"


async def test_claims_that_come_at_once_share_no_operation(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    asked = {(await cluster.operate("drain", hand)).operation_id for hand in await cluster.hands()}
    controllers = [cluster.controller, await Controller.start(world, "second")]
    claims = await asyncio.gather(*(controllers[number % 2].claim() for number in range(12)))
    taken = [claim.operation.operation_id for claim in claims if claim.operation is not None]
    assert (len(taken), set(taken)) == (3, asked)


async def test_a_holder_is_refused_once_its_operation_has_ended_without_it(world: World) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    delivery = (await held.issue()).delivery_id
    world.clock.forward(DEADLINE_S + 1)
    await reconcile.sweep(world.site)
    await _all_refused(held, delivery)
    await take_exit(world, held.operation, "retry")
    await _all_refused(held, delivery)
    again = await cluster.controller.take()
    await _all_refused(held, delivery)
    assert (await again.carry_out()).status == "succeeded"
    await _all_refused(held, delivery)


async def test_a_forced_end_fences_the_holder_out(world: World) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    delivery = (await held.issue()).delivery_id
    await take_exit(world, held.operation, "force_complete")
    await _all_refused(held, delivery)


async def test_an_end_that_is_reported_twice_counts_once(world: World) -> None:
    """After a lost answer a controller repeats itself; that is no stale write."""
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    ended = await held.carry_out()
    assert await held.complete() == ended
    await cluster.change("restart")
    failing = await cluster.controller.take()
    failed = await failing.fail()
    assert await failing.fail() == failed


async def test_a_silent_holder_that_was_not_replaced_continues_where_it_was(world: World) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take(lease_s=5)
    world.clock.forward(60)
    assert (await held.heartbeat()).lease.epoch == held.claim.epoch
    assert await cluster.controller.finds_nothing()
    assert (await held.carry_out()).status == "succeeded"


async def test_only_the_operator_of_an_instance_claims_its_operations_and_reports_on_them(world: World) -> None:
    cluster = await Cluster.requested(world)
    await cluster.controller.carry_out()
    machines = await cluster.machines(2, "own")
    inputs = {"head_allocation": machines[0], "hand_allocations": [machines[1]]}
    named = {"name": "own", "operator_service_account_id": "operator"}
    body = instances.DeployInstance(app_slug="toy", topology="pair", inputs=inputs, **named)
    operator = await Controller.start(world, "operator")
    await world.call(instances.INSTANCE_CREATE, body)
    assert await cluster.controller.finds_nothing()
    held = await operator.take()
    delivery = (await held.issue()).delivery_id
    intruder = Held(world, cluster.controller.token, held.claim)
    for write in _writes(intruder, delivery):
        with pytest.raises(errors.PermissionDenied):
            await write()
    stolen = runtime.ClaimOperation(app_slug="toy", holder="thief", claim_id=_claim_id(held))
    assert (await world.call(runtime.CLAIM, stolen, token=cluster.controller.token)).operation is None
    assert (await held.carry_out()).status == "succeeded"


async def test_an_instance_that_is_handed_over_refuses_its_old_operator_and_reports_the_new_one(
    world: World,
) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    delivery = (await held.issue()).delivery_id
    successor = await Controller.start(world, "successor")
    accounts = (await world.call(identity.SERVICE_ACCOUNT_LIST)).items
    account_id = next(account.service_account_id for account in accounts if account.name == "successor")
    body = instances.SetOperator(operator_service_account_id=account_id, reason="the first one is gone")
    for _ in range(2):
        await world.call(instances.OPERATOR_SET, body, instance_id=cluster.instance_id)
    for write in _writes(held, delivery):
        with pytest.raises(errors.PermissionDenied):
            await write()
    assert (await (await successor.take()).carry_out()).status == "succeeded"
    recorded = (await world.call(events.EVENT_LIST)).items
    (handed_over,) = [event for event in recorded if event.type == "apps.instance.operator_changed"]
    assert handed_over.payload == {"operator_service_account_id": account_id, "was": "", "reason": body.reason}


async def test_an_epoch_in_other_hands_is_worth_nothing(world: World) -> None:
    """Every user of the project can read an epoch; only the account that claimed can use it."""
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    delivery = (await held.issue()).delivery_id
    other = Held(world, await world.service_account("other"), held.claim)
    for write in _writes(other, delivery):
        with pytest.raises(errors.PermissionDenied):
            await write()
    assert (await held.carry_out()).status == "succeeded"


async def test_machine_access_ends_with_the_lease(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    allocation_id = (await cluster.member(hand)).allocation_id
    await cluster.operate("drain", hand)
    held = await cluster.controller.take()
    assert (await held.enter(allocation_id)).principal == allocation_id
    await held.carry_out()
    with pytest.raises(errors.LeaseLost):
        await held.enter(allocation_id)


async def test_a_heartbeat_reports_a_cancel_to_the_holder(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    operation = await cluster.operate("drain", hand)
    held = await cluster.controller.take()
    assert not (await held.heartbeat()).cancel_requested
    await take_exit(world, operation, "cancel")
    assert (await held.heartbeat()).cancel_requested
    assert await exits(world, operation) == {"force_complete"}
    assert (await held.complete()).status == "cancelled"


def _writes(held: Held, delivery: str) -> list[Write]:
    """One of each kind of write a lease allows."""
    member = held.claim.members[0]
    return [
        held.heartbeat,
        lambda: held.step("install"),
        lambda: held.report(member.member_id, "provisioning"),
        held.publish,
        held.complete,
        held.fail,
        held.issue,
        lambda: held.open(delivery),
        lambda: held.enter(member.allocation_id),
    ]


async def _all_refused(held: Held, delivery: str) -> None:
    before = await held.world.operation(held.operation_id)
    for write in _writes(held, delivery):
        with pytest.raises(errors.LeaseLost):
            await write()
    assert await held.world.operation(held.operation_id) == before


async def _everything(cluster: Cluster, held: Held) -> list[Any]:
    """All that a stale write could have changed."""
    listed = await cluster.world.call(secrets.SECRET_LIST, instance_id=cluster.instance_id)
    bundle = await cluster.world.send(instances.ACCESS_BUNDLE_GET, instance_id=cluster.instance_id)
    return [
        await cluster.world.operation(held.operation_id),
        await cluster.members(),
        await cluster.instance(),
        listed,
        bundle.status_code,
    ]


def _claim_id(held: Held) -> str:
    assert held.operation.lease is not None
    return held.operation.lease.claim_id
