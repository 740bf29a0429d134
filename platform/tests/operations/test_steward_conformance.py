"""Stewardships, on two platforms: what the SDK's platform in memory answers to a steward, the real one answers too."""

import datetime
from typing import Any

import pytest
from both_platforms import Side, hands, sides
from gpuaas_contract import errors, operations, runtime, stewardships

__all__ = ["sides"]


async def renew(side: Side, *held: stewardships.Stewardship, holder: str = "one", **more: Any) -> Any:
    listed = [{"instance_id": item.instance_id, "epoch": item.epoch, **more.pop("look", {})} for item in held]
    body = {"app_slug": "toy", "holder": holder, "held": listed, "take_max": 10, **more}
    return await side.controller.world.call(stewardships.RENEW, body, token=side.controller.token)


async def taken(side: Side, holder: str = "one", **more: Any) -> stewardships.Stewardship:
    (held,) = (await renew(side, holder=holder, **more)).held
    assert isinstance(held, stewardships.Stewardship)
    return held


async def report(side: Side, epoch: int, **more: Any) -> runtime.RuntimeReported:
    instance = await side.instance()
    condition = {"type": "Answers", "status": "true"}
    body = {"holder": "one", "observed_revision": 1, "epoch": epoch, "conditions": [condition], **more}
    where = {"instance_id": instance.instance_id}
    return await side.controller.world.call(runtime.RUNTIME_REPORT, body, token=side.controller.token, **where)


async def request(side: Side, epoch: int, *member_ids: str, kind: str = "repair") -> operations.Operation:
    body = {"epoch": epoch, "kind": kind, "member_ids": list(member_ids), "reason": "the daemon is stopped"}
    where = {"instance_id": (await side.instance()).instance_id}
    return await side.controller.world.call(stewardships.OPERATION_REQUEST, body, token=side.controller.token, **where)


def now(side: Side) -> datetime.datetime:
    return side.controller.world.clock()


async def test_a_free_stewardship_is_taken_once_and_renewed_by_its_holder(sides: tuple[Side, Side]) -> None:
    for side in sides:
        first = await taken(side)
        assert (first.epoch, first.revision) == (1, (await side.instance()).revision), side
        other = await renew(side, holder="two")
        assert (other.held, other.lost) == ([], [])
        side.controller.world.clock.forward(20)
        (kept,) = (await renew(side, first)).held
        assert (kept.epoch, kept.expires_at) == (1, now(side) + datetime.timedelta(seconds=30))
        stolen = await renew(side, first, holder="two")
        assert (stolen.held, stolen.lost) == ([], [first.instance_id])


async def test_nothing_is_taken_unless_it_is_wanted(sides: tuple[Side, Side]) -> None:
    for side in sides:
        assert (await renew(side, take_max=0)).held == [], side


async def test_an_expired_stewardship_is_taken_with_a_higher_epoch_and_the_old_holder_is_refused(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        old = await taken(side, lease_s=10)
        await report(side, old.epoch)
        side.controller.world.clock.forward(10)
        with pytest.raises(errors.LeaseLost, match="expired"):
            await report(side, old.epoch)
        new = await taken(side, holder="two")
        assert new.epoch == old.epoch + 1, side
        for late in (old.epoch, old.epoch - 1):
            with pytest.raises(errors.LeaseLost):
                await report(side, late)
        assert (await renew(side, old)).lost == [old.instance_id]
        await report(side, new.epoch)
        with pytest.raises(errors.LeaseLost):
            await request(side, old.epoch, (await hands(side))[0])


async def test_an_expired_stewardship_that_no_process_took_is_renewed(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held = await taken(side, lease_s=10)
        side.controller.world.clock.forward(11)
        (again,) = (await renew(side, held)).held
        assert again.epoch == held.epoch, side
        await report(side, held.epoch)


async def test_a_report_without_an_epoch_is_accepted_only_while_no_process_holds_the_stewardship(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        await report(side, 0)
        await taken(side)
        with pytest.raises(errors.LeaseLost):
            await report(side, 0)
        side.controller.world.clock.forward(31)
        await report(side, 0)


async def test_the_instance_shows_its_steward_and_when_it_was_last_looked_at(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held = await taken(side)
        looked = now(side).isoformat()
        side.controller.world.clock.forward(4)
        await renew(side, held, look={"observed_at": looked})
        steward = (await side.shown()).steward
        assert steward is not None
        assert (steward.holder, steward.epoch) == ("one", 1), side
        assert steward.observed_at == now(side) - datetime.timedelta(seconds=4)
        ahead = (now(side) + datetime.timedelta(hours=1)).isoformat()
        await renew(side, held, look={"observed_at": ahead})
        steward = (await side.shown()).steward
        assert steward is not None
        assert steward.observed_at == now(side)


async def test_the_conditions_of_the_platform_are_not_reported_by_controllers(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held = await taken(side)
        with pytest.raises(errors.ValidationFailed, match="Observed is set by the platform"):
            await report(side, held.epoch, conditions=[{"type": "Observed", "status": "true"}])


async def test_a_repair_that_the_steward_requests_is_claimed_and_leaves_the_member_as_it_was(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        held, (member_id, other) = await taken(side), await hands(side)
        asked = await request(side, held.epoch, member_id)
        assert (asked.kind, asked.reason, asked.component_key) == ("repair", "the daemon is stopped", "hand"), side
        with pytest.raises(errors.OperationInProgress):
            await request(side, held.epoch, member_id)
        claimed = await side.controller.take()
        assert (claimed.operation.operation_id, (await side.member(member_id)).status) == (
            asked.operation_id,
            "ready",
        )
        assert (await claimed.complete()).status == "succeeded"
        await request(side, held.epoch, other)


async def test_a_drained_member_is_drained_after_its_repair_and_a_failed_one_is_ready(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        drained, broken = await hands(side)
        await side.operate("drain", drained)
        await side.controller.carry_out()
        held = await taken(side)
        revision = (await side.member(broken)).revision
        seen = {"member_id": broken, "revision": revision, "status": "failed", "status_reason": "no answer"}
        await report(side, held.epoch, members=[seen])
        for member_id in (drained, broken):
            await request(side, held.epoch, member_id)
            claimed = await side.controller.take()
            if member_id == broken:
                await claimed.report(member_id, "ready")
            ended = await claimed.complete()
            assert (ended.status, ended.error) == ("succeeded", None), side
        assert [(await side.member(member_id)).status for member_id in (drained, broken)] == ["drained", "ready"]


async def test_a_drained_member_that_failed_may_be_drained_after_its_repair(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        await side.operate("drain", member_id)
        await side.controller.carry_out()
        held, revision = await taken(side), (await side.member(member_id)).revision
        seen = {"member_id": member_id, "revision": revision, "status": "failed", "status_reason": "no answer"}
        await report(side, held.epoch, members=[seen])
        await request(side, held.epoch, member_id)
        claimed = await side.controller.take()
        await claimed.report(member_id, "drained")
        ended = await claimed.complete()
        assert (ended.status, ended.error) == ("succeeded", None), side


async def test_a_repair_that_does_not_help_fails(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held, member_id = await taken(side), (await hands(side))[0]
        await request(side, held.epoch, member_id)
        claimed = await side.controller.take()
        await claimed.report(member_id, "degraded")
        with pytest.raises(errors.OperationUnfinished, match="must be ready"):
            await claimed.complete()
        await claimed.report(member_id, "failed", status_reason="the disk is dead")
        assert (await claimed.complete()).status == "failed", side


async def test_a_repair_does_not_give_work_to_a_member_that_someone_holds(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        await side.operate("drain", member_id)
        await side.controller.carry_out()
        await side.hold_work(member_id)
        held = await taken(side)
        await request(side, held.epoch, member_id)
        claimed = await side.controller.take()
        with pytest.raises(errors.MemberHeld):
            await claimed.report(member_id, "ready")
        assert (await claimed.complete()).status == "succeeded", side


async def test_a_steward_requests_a_repair_of_a_member_three_times_an_hour(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held, (member_id, other) = await taken(side), await hands(side)
        first_at = now(side)
        for _ in range(3):
            await request(side, held.epoch, member_id)
            await (await side.controller.take()).complete()
            side.controller.world.clock.forward(60)
            (held,) = (await renew(side, held)).held
        with pytest.raises(errors.StewardBudgetUsed) as refused:
            await request(side, held.epoch, member_id)
        next_at = datetime.datetime.fromisoformat(refused.value.details["next_at"])
        assert next_at == first_at + datetime.timedelta(hours=1), side
        await request(side, held.epoch, other)


async def test_after_a_person_cancelled_a_repair_the_steward_does_not_request_it_at_once(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        held, (member_id, other) = await taken(side), await hands(side)
        asked = await request(side, held.epoch, member_id)
        claimed = await side.controller.take()
        cancelled_at = now(side)
        await side.leave(asked, "cancel")
        assert (await claimed.complete(undone=True)).status == "cancelled", side
        with pytest.raises(errors.StewardBudgetUsed, match="cancelled the last repair") as refused:
            await request(side, held.epoch, member_id)
        next_at = datetime.datetime.fromisoformat(refused.value.details["next_at"])
        assert next_at == cancelled_at + datetime.timedelta(hours=1), side
        assert (await side.member(member_id)).last_operation_id == asked.operation_id, "the refusal left no trace"
        await request(side, held.epoch, other)


async def test_after_a_person_acted_on_the_member_the_steward_may_request_a_repair_again(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        held, member_id = await taken(side), (await hands(side))[0]
        asked = await request(side, held.epoch, member_id)
        await side.leave(asked, "cancel")
        await side.operate("repair", member_id)
        await side.controller.carry_out()
        await request(side, held.epoch, member_id)


async def test_a_kind_that_the_manifest_does_not_list_is_refused(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held, member_id = await taken(side), (await hands(side))[0]
        with pytest.raises(errors.Conflict, match="does not let its controller request drain"):
            await request(side, held.epoch, member_id, kind="drain")


async def test_access_is_published_between_operations_by_the_steward_alone(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held = await taken(side)
        where = {"instance_id": held.instance_id}
        for epoch in (held.epoch + 1, 0):
            with pytest.raises(errors.LeaseLost):
                await side.controller.world.call(
                    stewardships.ACCESS_PUBLISH, {"epoch": epoch}, token=side.controller.token, **where
                )
        body = {"epoch": held.epoch, "notes": ["the head moved"]}
        published = await side.controller.world.call(
            stewardships.ACCESS_PUBLISH, body, token=side.controller.token, **where
        )
        assert published.notes == ["the head moved"], side


async def test_a_steward_moves_a_member_to_a_spare_only_if_an_input_allows_it(sides: tuple[Side, Side]) -> None:
    for side in sides:
        first, second = await hands(side)
        await side.lose(first)
        epoch = (await taken(side)).epoch
        with pytest.raises(errors.Conflict, match="has no input speed"):
            await request(side, epoch, first, kind="replace")
        await side.allow_replace()
        with pytest.raises(errors.ValidationFailed, match="one member at a time"):
            await request(side, epoch, first, second, kind="replace")
        with pytest.raises(errors.Conflict, match="receives heartbeats"):
            await request(side, epoch, second, kind="replace")
        with pytest.raises(errors.NoSpare):
            await request(side, epoch, first, kind="replace")
        spare = await side.spare()
        await side.hold(second)
        with pytest.raises(errors.MemberHeld):
            await request(side, epoch, second, kind="replace")
        asked = await request(side, epoch, first, kind="replace")
        assert (asked.kind, asked.force, asked.reason) == ("replace", True, "the daemon is stopped"), side
        assert asked.by_steward, side
        assert asked.targets[0].allocation_id == spare, side
        claimed = await side.controller.take()
        await claimed.report(first, "removing", "provisioning", "joining", "ready")
        assert (await claimed.complete()).status == "succeeded", side
        assert (await side.member(first)).allocation_id == spare


async def test_a_machine_that_a_replace_gave_up_is_not_the_next_spare(sides: tuple[Side, Side]) -> None:
    for side in sides:
        first, _ = await hands(side)
        await side.allow_replace()
        given_up = (await side.member(first)).node_name
        await side.lose(first)
        await side.spare()
        held = await taken(side)
        await request(side, held.epoch, first, kind="replace")
        claimed = await side.controller.take()
        await claimed.report(first, "removing", "provisioning", "joining", "ready")
        assert (await claimed.complete()).status == "succeeded", side
        await side.recover(given_up)
        await side.lose(first)
        await renew(side, held)
        with pytest.raises(errors.NoSpare):
            await request(side, held.epoch, first, kind="replace")
