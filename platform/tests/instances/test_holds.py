"""Holds: a named, owned reason why a member must not take work or not be removed. Only the owner lifts one early."""

from typing import Any

import pytest
from gpuaas_contract import errors, holds, instances
from platform_world import World
from scripted_controller import Cluster, evidence, take_exit

REASON: dict[str, Any] = {"force": True, "reason": "the room floods"}


async def test_a_hold_on_removal_blocks_every_operation_that_removes_the_member(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    (machine,) = await cluster.machines(1)
    hold = await cluster.hold(hand, "no_removal")
    refusals = (
        cluster.operate("remove", hand),
        cluster.operate("replace", hand, allocation_ids=[machine]),
        cluster.change("decommission"),
    )
    for refusal in refusals:
        with pytest.raises(errors.MemberHeld, match="the fan is loud") as refused:
            await refusal
        assert refused.value.details == {
            "hold_id": hold.hold_id,
            "member_id": hand,
            "owner": hold.owner,
            "expires_at": hold.expires_at.isoformat(),
        }
    for kind in ("drain", "resume"):
        await cluster.operate(kind, hand)
        assert (await cluster.controller.carry_out()).status == "succeeded"
    await cluster.change("restart")
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_a_hold_on_work_keeps_a_drained_member_drained(world: World) -> None:
    cluster = await Cluster.running(world)
    first, second = await cluster.hands()
    await cluster.hold(first, "no_work")
    await cluster.operate("drain", first, second)
    await cluster.controller.carry_out()
    with pytest.raises(errors.MemberHeld):
        await cluster.operate("resume", first, second)
    await cluster.operate("resume", second)
    await cluster.controller.carry_out()
    await cluster.operate("remove", first)
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_force_passes_a_hold(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    first, second, _ = await cluster.hands()
    await cluster.hold(first, "no_removal")
    await cluster.hold(second, "no_work")
    await cluster.operate("remove", first, **REASON)
    await cluster.controller.carry_out()
    await cluster.operate("drain", second)
    await cluster.controller.carry_out()
    await cluster.operate("resume", second, **REASON)
    await cluster.controller.carry_out()
    assert await cluster.statuses(first, second) == ["removed", "ready"]
    await cluster.hold(second, "no_removal")
    await cluster.change("decommission", **REASON)
    await cluster.controller.carry_out()
    assert await cluster.status() == "deleted"


async def test_only_the_owner_lifts_a_hold(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    owner = await world.person("olga", "project_member", world.project_id)
    hold = await cluster.hold(hand, "no_removal", token=owner.token)
    params = {"instance_id": cluster.instance_id, "hold_id": hold.hold_id}
    with pytest.raises(errors.PermissionDenied) as refused:
        await world.call(holds.HOLD_LIFT, **params)
    assert refused.value.details["owner"] == owner.user_id
    with pytest.raises(errors.MemberHeld):
        await cluster.operate("remove", hand)
    lifted = await world.call(holds.HOLD_LIFT, token=owner.token, **params)
    assert lifted.lifted_at == world.clock()
    world.clock.forward(5)
    assert await world.call(holds.HOLD_LIFT, token=owner.token, **params) == lifted
    await cluster.operate("remove", hand)
    owners = [(await cluster.event_payloads(f"apps.hold.{what}"))[0]["owner"] for what in ("placed", "lifted")]
    assert owners == [owner.user_id, owner.user_id]
    assert len(await cluster.event_payloads("apps.hold.lifted")) == 1


async def test_a_hold_ends_by_itself_and_stays_in_the_list(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    hold = await cluster.hold(hand, "no_removal", ttl_s=60)
    world.clock.forward(59)
    with pytest.raises(errors.MemberHeld):
        await cluster.operate("remove", hand)
    world.clock.forward(1)
    await cluster.operate("remove", hand)
    listed = await world.call(holds.HOLD_LIST, instance_id=cluster.instance_id)
    assert listed.items == [hold]


async def test_a_claim_shows_the_holds_in_force(world: World) -> None:
    cluster = await Cluster.running(world)
    first, second = await cluster.hands()
    hold = await cluster.hold(second, "no_work", ttl_s=3600)
    await cluster.hold(first, "no_work", ttl_s=60)
    world.clock.forward(61)
    await cluster.operate("drain", first)
    assert (await cluster.controller.take()).claim.holds == [hold]


async def test_a_hold_placed_after_the_request_still_keeps_the_member(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    removing = await cluster.operate("remove", hand)
    held = await cluster.controller.take()
    await held.report(hand, "draining", "drained")
    await cluster.hold(hand, "no_removal", ttl_s=60)
    with pytest.raises(errors.MemberHeld):
        await held.report(hand, "removing", evidence=evidence(world.clock()))
    assert await cluster.statuses(hand) == ["drained"]
    await held.fail()
    world.clock.forward(61)
    await take_exit(world, removing, "retry")
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_a_hold_placed_once_a_member_is_being_removed_comes_too_late(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    await cluster.operate("remove", hand)
    held = await cluster.controller.take()
    await held.report(hand, "removing", evidence=evidence(world.clock()))
    await cluster.hold(hand, "no_removal")
    await held.report(hand, "removed")
    assert (await held.complete()).status == "succeeded"


async def test_a_held_member_comes_back_when_its_removal_is_cancelled(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    removing = await cluster.operate("remove", hand)
    held = await cluster.controller.take()
    await held.report(hand, "draining", "drained")
    await cluster.hold(hand, "no_removal")
    await take_exit(world, removing, "cancel")
    await held.report(hand, "ready")
    assert (await held.complete()).status == "cancelled"


async def test_a_hold_on_work_placed_after_the_request_keeps_the_member_drained(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    await cluster.operate("resume", hand)
    held = await cluster.controller.take()
    await cluster.hold(hand, "no_work")
    with pytest.raises(errors.MemberHeld):
        await held.report(hand, "ready")
    assert await cluster.statuses(hand) == ["drained"]


async def test_what_was_forced_passes_holds_that_come_later_too(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    await cluster.operate("remove", hand, **REASON)
    await cluster.hold(hand, "no_removal")
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_a_hold_needs_a_reason_a_bound_a_permission_and_a_member_that_is_there(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    sound = {"name": "x", "kind": "no_work", "reason": "y"}
    params = {"instance_id": cluster.instance_id, "member_id": hand}
    for flaw in ({"reason": " "}, {"ttl_s": 59}, {"ttl_s": holds.HOLD_S_MAX + 1}, {"kind": "no_fun"}, {"name": ""}):
        with pytest.raises(errors.ValidationFailed):
            await world.call(holds.HOLD_PLACE, {**sound, **flaw}, **params)
    viewer = await world.person("vic", "viewer", world.project_id)
    with pytest.raises(errors.PermissionDenied):
        await cluster.hold(hand, "no_work", token=viewer.token)
    with pytest.raises(errors.NotFound):
        await cluster.hold("mem_none", "no_work")
    await cluster.operate("remove", hand)
    await cluster.controller.carry_out()
    with pytest.raises(errors.Conflict, match="is removed"):
        await cluster.hold(hand, "no_work")
    listed = await world.call(holds.HOLD_LIST, instance_id=cluster.instance_id)
    assert listed.items == []


async def test_a_dry_run_of_a_held_removal_is_refused_too(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.hold(hand, "no_removal")
    body = {"kind": "remove", "member_ids": [hand]}
    answer = await world.send(
        instances.MEMBER_OPERATION_CREATE, body, query={"dry_run": "true"}, instance_id=cluster.instance_id
    )
    assert (answer.status_code, answer.json()["code"]) == (409, "member_held")
