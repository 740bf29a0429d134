"""The breaker of a role, on two platforms: the SDK's platform in memory opens it for the same failures as the real
one."""

import pytest
from both_platforms import Side, hands, sides
from gpuaas_contract import errors, operations, stewardships
from gpuaas_contract.catalog import Breaker

__all__ = ["sides"]

FAILURES = Breaker().failures


async def fail(side: Side, *, is_reported: bool = True) -> None:
    """Let the add that waits for the controller fail, on a member on which it has begun."""
    held = await side.controller.take()
    await held.report(held.member_ids[0], "provisioning", *(["failed"] if is_reported else []))
    await held.fail()


async def fail_until_open(side: Side) -> operations.Operation:
    asked = await side.add(1)
    await fail(side)
    for _ in range(FAILURES - 1):
        assert not (await side.breaker()).open, side
        await side.leave(asked, "retry")
        await fail(side)
    return asked


async def test_failed_adds_open_the_breaker_which_refuses_until_it_is_reset(sides: tuple[Side, Side]) -> None:
    for side in sides:
        asked = await fail_until_open(side)
        shown = await side.breaker()
        assert (shown.open, shown.failures) == (True, FAILURES), side
        with pytest.raises(errors.CircuitOpen):
            await side.leave(asked, "retry")
        with pytest.raises(errors.CircuitOpen):
            await side.replace((await hands(side))[0])
        assert (await side.instance()).status == "degraded", side
        await side.reset_breaker()
        await side.leave(asked, "retry")
        assert (await side.controller.carry_out()).status == "succeeded", side
        assert not (await side.breaker()).open


async def test_a_steward_cannot_repair_members_of_a_role_with_an_open_breaker(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await fail_until_open(side)
        call, where = side.controller.world.call, {"instance_id": (await side.instance()).instance_id}
        renewal = {"app_slug": "toy", "holder": "one", "held": [], "take_max": 10}
        (held,) = (await call(stewardships.RENEW, renewal, token=side.controller.token)).held
        body = {"epoch": held.epoch, "kind": "repair", "member_ids": (await hands(side))[:1], "reason": "it is down"}
        with pytest.raises(errors.CircuitOpen):
            await call(stewardships.OPERATION_REQUEST, body, token=side.controller.token, **where)


async def test_a_failure_counts_once_also_if_the_operation_fails_and_the_member_is_not_reported(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        asked = await side.add(1)
        await fail(side)
        assert (await side.breaker()).failures == 1, side
        await side.leave(asked, "retry")
        await fail(side, is_reported=False)
        assert (await side.breaker()).failures == 2, side


async def test_a_cancelled_add_does_not_count(sides: tuple[Side, Side]) -> None:
    for side in sides:
        asked = await side.add(1)
        held = await side.controller.take()
        await held.report(held.member_ids[0], "provisioning")
        await side.leave(asked, "cancel")
        await held.report(held.member_ids[0], "failed")
        await held.fail()
        assert (await side.breaker()).failures == 0, side
