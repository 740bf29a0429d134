"""A refusal leaves everything as it was; exits are offered only where they can work; a member that was given up is
still wanted."""

import pytest
from gpuaas_contract import errors, instances, runtime
from platform_world import MANIFEST, World
from scripted_controller import Cluster, Held, exits, take_exit, with_hands


async def _refuse(held: Held) -> None:
    await held.fail("refused", "refused")


async def test_a_refused_decommission_leaves_the_instance_running_and_offers_a_retry(world: World) -> None:
    cluster = await Cluster.running(world)
    before = await cluster.instance()
    operation = await cluster.change("decommission")
    await _refuse(await cluster.controller.take())
    after = await cluster.instance()
    assert (after.status, after.conditions) == ("running", before.conditions)
    assert set(await cluster.statuses(*await cluster.hands())) == {"ready"}
    assert await exits(world, operation) == {"retry", "force_complete"}
    await take_exit(world, operation, "retry")
    await cluster.controller.carry_out()
    assert await cluster.status() == "deleted"


async def test_a_refused_member_gets_its_status_back_and_the_operation_names_it(world: World) -> None:
    cluster = await Cluster.running(world)
    first, other = await cluster.hands()
    await cluster.operate("drain", first, other)
    held = await cluster.controller.take()
    await held.report(first, "draining")
    await held.report(first, "draining", refused=True, status_reason="another user drains it")
    await held.report(other, "draining", "drained")
    ended = await held.complete()
    assert await cluster.statuses(first, other) == ["ready", "drained"]
    assert {target.member_id: (target.outcome, target.error) for target in ended.targets} == {
        first: ("refused", "another user drains it"),
        other: ("succeeded", ""),
    }
    assert ended.error is not None
    assert (ended.error.code, ended.error.failure_class) == ("refused", "refused")


async def test_a_refused_deploy_waits_for_a_retry_or_a_decommission(world: World) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    await _refuse(held)
    assert await cluster.status() == "requested"
    assert "it broke" in (await cluster.instance()).status_reason
    assert set(await cluster.statuses(*held.member_ids)) == {"requested"}
    await cluster.change("decommission")
    await cluster.controller.carry_out()
    assert await cluster.status() == "deleted"


async def test_refused_and_cancelled_joins_do_not_open_the_breaker(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 1, "window_s": 600}))
    first, second, third = await cluster.machines(3)
    await cluster.add(first)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    await _refuse(held)
    cancelled = await cluster.add(second)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    await take_exit(world, cancelled, "cancel")
    await held.report(held.member_ids[0], "failed")
    await held.fail()
    assert (await cluster.add(third)).status == "accepted"


async def test_a_deploy_ends_without_a_member_that_was_given_up_and_the_role_still_wants_it(world: World) -> None:
    cluster = await Cluster.requested(world)
    held = await cluster.controller.take()
    lost = next(member for member in held.claim.members if member.component_key == "hand").member_id
    await held.bring([member_id for member_id in held.member_ids if member_id != lost])
    await held.report(lost, "provisioning", "failed")
    operation = await held.complete()
    await take_exit(world, operation, "tombstone")
    await take_exit(world, operation, "retry")
    again = await (await cluster.controller.take()).complete()
    assert (again.status, await cluster.status()) == ("succeeded", "running")
    assert await _counts(cluster) == (2, 1, "degraded")
    await cluster.add(*await cluster.machines(1))
    await cluster.controller.carry_out()
    assert await _counts(cluster) == (2, 2, "healthy")
    await cluster.operate("remove", (await cluster.hands())[0])
    await cluster.controller.carry_out()
    assert await _counts(cluster) == (1, 1, "healthy")


async def _counts(cluster: Cluster) -> tuple[int, int, str]:
    roles = await cluster.world.call(instances.ROLE_LIST, instance_id=cluster.instance_id)
    hand = next(role for role in roles.items if role.component_key == "hand")
    return hand.desired, hand.ready, hand.health


async def test_a_retry_is_not_offered_after_a_later_operation_removed_what_failed(world: World) -> None:
    cluster = await Cluster.running(world)
    first, other = await cluster.hands()
    drain = await cluster.operate("drain", first, other)
    held = await cluster.controller.take()
    await held.report(first, "draining", "drained")
    await held.report(other, "failed")
    await held.complete()
    assert "retry" in await exits(world, drain)
    await cluster.operate("remove", other)
    await cluster.controller.carry_out()
    assert "retry" not in await exits(world, drain)
    with pytest.raises(errors.ExitUnavailable):
        await take_exit(world, drain, "retry")


@pytest.mark.parametrize(("undoes", "offered"), [(None, True), (["drain"], True), (["drain/hand"], True), ([], False)])
async def test_cancel_and_compensate_are_offered_only_if_the_controller_can_undo(
    world: World, undoes: list[str] | None, offered: bool
) -> None:
    cluster = await Cluster.running(world)
    operation = await cluster.operate("drain", (await cluster.hands())[0])
    assert "cancel" in await exits(world, operation)
    body = runtime.ClaimOperation(app_slug="toy", holder="controller", claim_id="one", undoes=undoes)
    claim = await world.call(runtime.CLAIM, body, token=cluster.controller.token)
    assert ("cancel" in await exits(world, operation)) == offered
    await Held(world, cluster.controller.token, claim).fail()
    assert ("compensate" in await exits(world, operation)) == offered


async def test_an_undo_may_leave_a_member_as_it_was_before(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    operation = await cluster.operate("resume", hand)
    held = await cluster.controller.take()
    await take_exit(world, operation, "cancel")
    assert (await held.complete(undone=True)).status == "cancelled"
    assert await cluster.statuses(hand) == ["drained"]


async def test_an_operation_that_the_app_does_not_offer_is_refused_with_those_it_offers(world: World) -> None:
    cluster = await Cluster.running(world, instance_operations=["restart"], deploy_form=MANIFEST["deploy_form"])
    with pytest.raises(errors.Conflict) as refused:
        await cluster.change("stop")
    assert "does not offer stop" in refused.value.message
    assert "it offers: restart, decommission" in refused.value.fix
