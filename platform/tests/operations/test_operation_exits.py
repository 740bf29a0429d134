"""An operation that cannot continue ends in a typed state with exits; each exit is taken here, over the API alone."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from gpuaas_contract import audit, capacity, errors, events, operations, policy, runtime
from gpuaas_platform.kit import db
from gpuaas_platform.operations import members, reconcile
from platform_world import World
from scripted_controller import DEADLINE_S, Cluster, evidence, exits, publish_version, take_exit, with_hands

Stuck = Callable[[Cluster, str], Awaitable[operations.Operation]]
"""Add a member on this machine and let it go wrong."""


async def _controller_dies(cluster: Cluster, machine: str) -> operations.Operation:
    operation = await cluster.add(machine)
    held = await cluster.controller.take()
    await held.heartbeat()
    await held.step("install", "running", held.member_ids[0])
    await held.report(held.member_ids[0], "provisioning", "joining")
    return await _past_the_deadline(cluster, operation)


async def _controller_never_beats(cluster: Cluster, machine: str) -> operations.Operation:
    operation = await cluster.add(machine)
    await cluster.controller.take()
    return await _past_the_deadline(cluster, operation)


async def _is_never_claimed(cluster: Cluster, machine: str) -> operations.Operation:
    return await _past_the_deadline(cluster, await cluster.add(machine))


async def _it_takes_too_long(cluster: Cluster, machine: str) -> operations.Operation:
    operation = await cluster.add(machine)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    for _ in range(DEADLINE_S // 50):
        cluster.world.clock.forward(50)
        await held.heartbeat(lease_s=60)
    await reconcile.sweep(cluster.world.site)
    return await cluster.world.operation(operation.operation_id)


async def _machine_vanishes(cluster: Cluster, machine: str) -> operations.Operation:
    await cluster.add(machine)
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    return await held.fail("lost", "machine_gone")


async def _past_the_deadline(cluster: Cluster, operation: operations.Operation) -> operations.Operation:
    cluster.world.clock.forward(DEADLINE_S + 1)
    await reconcile.sweep(cluster.world.site)
    return await cluster.world.operation(operation.operation_id)


STUCK: dict[str, tuple[Stuck, str, str]] = {
    "a controller that dies": (_controller_dies, "controller_lost", "expired"),
    "a controller that never beats": (_controller_never_beats, "controller_lost", "expired"),
    "an operation that is never claimed": (_is_never_claimed, "never_claimed", "expired"),
    "an operation past its deadline": (_it_takes_too_long, "deadline_passed", "expired"),
    "an add whose machine vanished": (_machine_vanishes, "machine_gone", "lost"),
}
"""What goes wrong, and the code and class it ends with."""


async def _retry(cluster: Cluster, failed: operations.Operation) -> None:
    again = await take_exit(cluster.world, failed, "retry")
    assert (again.status, again.error) == ("accepted", None)
    assert (again.deadline_at - cluster.world.clock()).total_seconds() == DEADLINE_S
    held = await cluster.controller.take()
    assert [step.name for step in held.operation.steps] == [step.name for step in failed.steps]
    await held.report(held.member_ids[0], "provisioning", "joining", "ready")
    await held.complete()


async def _compensate(cluster: Cluster, failed: operations.Operation) -> None:
    again = await take_exit(cluster.world, failed, "compensate")
    assert (again.status, again.compensating) == ("accepted", True)
    held = await cluster.controller.take()
    with pytest.raises(errors.Conflict, match="must be removed or tombstoned"):
        await held.complete()
    await held.report(held.member_ids[0], "removing", "removed")
    await held.complete()


async def _force_complete(cluster: Cluster, failed: operations.Operation) -> None:
    await take_exit(cluster.world, failed, "force_complete")


async def _tombstone(cluster: Cluster, failed: operations.Operation) -> None:
    await take_exit(cluster.world, failed, "tombstone")


async def _retry_then_cancel(cluster: Cluster, failed: operations.Operation) -> None:
    await take_exit(cluster.world, failed, "retry")
    held = await cluster.controller.take()
    await take_exit(cluster.world, failed, "cancel")
    assert (await held.heartbeat()).cancel_requested
    await held.report(held.member_ids[0], "removing", "removed")
    await held.complete()


WAYS_OUT: dict[str, tuple[Callable[[Cluster, operations.Operation], Awaitable[None]], tuple[str, str, str, bool]]] = {
    "retry": (_retry, ("succeeded", "ready", "running", True)),
    "compensate": (_compensate, ("cancelled", "removed", "running", False)),
    "retry, then cancel": (_retry_then_cancel, ("cancelled", "removed", "running", False)),
    "tombstone": (_tombstone, ("failed", "tombstoned", "running", False)),
    "force_complete": (_force_complete, ("succeeded", "degraded", "degraded", True)),
}
"""How it is left, and then: operation, member, instance, whether the machine is still bound."""


@pytest.mark.parametrize("trouble", STUCK)
async def test_a_stuck_operation_ends_with_a_typed_error_and_every_exit_ends_it(world: World, trouble: str) -> None:
    cluster = await Cluster.running(world, hands=1)
    go_wrong, code, failure_class = STUCK[trouble]
    machines = await cluster.machines(len(WAYS_OUT))
    for machine, (leave, expected) in zip(machines, WAYS_OUT.values(), strict=True):
        failed = await go_wrong(cluster, machine)
        await _assert_typed(cluster, failed, code, failure_class)
        await leave(cluster, failed)
        ended = await world.operation(failed.operation_id)
        (member_status,) = await cluster.statuses(failed.targets[0].member_id)
        assert (ended.status, member_status, await cluster.status(), machine in await cluster.bound()) == expected
        assert await cluster.bound() == await cluster.occupied()
        assert await cluster.controller.finds_nothing()


async def _assert_typed(cluster: Cluster, failed: operations.Operation, code: str, failure_class: str) -> None:
    assert failed.error is not None
    assert (failed.status, failed.error.code, failed.error.failure_class) == ("failed", code, failure_class)
    assert failed.error.retryable == (failure_class == "expired")
    assert (failed.lease, failed.targets[0].outcome) == (None, "failed")
    assert await cluster.statuses(failed.targets[0].member_id) == ["failed"]
    assert await cluster.status() == "degraded"
    assert await cluster.bound() == await cluster.occupied()
    assert await exits(cluster.world, failed) == {"retry", "compensate", "force_complete", "tombstone"}


async def test_an_operation_that_was_never_claimed_is_cancelled_at_once(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (machine,) = await cluster.machines(1)
    operation = await cluster.add(machine)
    ended = await take_exit(world, operation, "cancel")
    assert (ended.status, ended.targets[0].outcome) == ("cancelled", "cancelled")
    assert await cluster.statuses(ended.targets[0].member_id) == ["removed"]
    assert machine not in await cluster.bound()
    assert await cluster.controller.finds_nothing()


async def test_a_cancelled_operation_whose_controller_died_is_taken_over_with_the_cancel(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (machine,) = await cluster.machines(1)
    operation = await cluster.add(machine)
    dead = await cluster.controller.take(lease_s=5)
    await dead.report(dead.member_ids[0], "provisioning")
    assert (await take_exit(world, operation, "cancel")).status == "cancelling"
    world.clock.forward(6)
    held = await cluster.controller.take()
    assert held.operation.lease is not None
    assert (held.operation.status, held.operation.lease.cancel_requested) == ("cancelling", True)
    with pytest.raises(errors.Conflict, match="is not done"):
        await held.complete()
    await held.report(held.member_ids[0], "removing", "removed")
    assert (await held.complete()).status == "cancelled"
    assert await cluster.bound() == await cluster.occupied()


async def test_a_cancel_that_comes_too_late_changes_nothing(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    operation = await cluster.add(*await cluster.machines(1))
    held = await cluster.controller.take()
    await held.bring(held.member_ids)
    await take_exit(world, operation, "cancel")
    assert (await held.complete()).status == "succeeded"


async def test_a_cancelled_operation_that_is_never_undone_fails_at_its_deadline_and_keeps_its_exits(
    world: World,
) -> None:
    cluster = await Cluster.running(world, hands=1)
    operation = await cluster.add(*await cluster.machines(1))
    await cluster.controller.take()
    await take_exit(world, operation, "cancel")
    failed = await _past_the_deadline(cluster, operation)
    assert failed.error is not None
    assert (failed.status, failed.error.code) == ("failed", "controller_lost")
    assert await exits(world, failed) == {"retry", "compensate", "force_complete", "tombstone"}


@pytest.mark.parametrize("verb", ["deploy", "stop", "decommission"])
async def test_an_instance_operation_its_controller_left_is_forced_to_its_end(world: World, verb: str) -> None:
    cluster = await Cluster.requested(world, hands=1)
    operation = await _open_operation(cluster, verb)
    ended = await take_exit(world, operation, "force_complete")
    members = await cluster.statuses(*(target.member_id for target in operation.targets))
    expected = {
        "deploy": ("degraded", {"degraded"}),
        "stop": ("stopped", {"drained"}),
        "decommission": ("deleted", {"tombstoned"}),
    }
    assert (ended.status, {target.outcome for target in ended.targets}) == ("succeeded", {"succeeded"})
    assert (await cluster.status(), set(members)) == expected[verb]
    assert await cluster.bound() == await cluster.occupied()


async def test_a_forced_end_never_calls_a_half_removed_member_sound(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (hand,) = await cluster.hands()
    operation = await cluster.operate("replace", hand, allocation_ids=await cluster.machines(1))
    held = await cluster.controller.take()
    await held.report(hand, "removing", evidence=evidence(world.clock()))
    await take_exit(world, operation, "force_complete")
    assert await cluster.statuses(hand) == ["failed"]
    assert await cluster.bound() == await cluster.occupied()


@pytest.mark.parametrize("is_gone", [False, True], ids=["still free", "released"])
async def test_the_undo_of_a_replace_has_its_new_machine_again_if_that_is_still_free(
    world: World, is_gone: bool
) -> None:
    cluster = await Cluster.running(world, hands=1)
    (hand,), (spare,) = await cluster.hands(), await cluster.machines(1)
    await cluster.operate("replace", hand, allocation_ids=[spare])
    failed = await (await cluster.controller.take()).fail()
    assert await cluster.bound() == await cluster.occupied()
    if is_gone:
        await world.call(capacity.ALLOCATION_RELEASE, allocation_id=spare)
    await take_exit(world, failed, "compensate")
    assert (spare in await cluster.bound()) is not is_gone
    held = await cluster.controller.take()
    await held.report(hand, "ready")
    assert (await held.complete()).status == "cancelled"
    assert await cluster.bound() == await cluster.occupied()


async def test_a_member_that_failed_before_its_replace_may_stay_failed_if_that_is_undone(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (hand,), (spare,) = await cluster.hands(), await cluster.machines(1)
    await cluster.operate("drain", hand)
    held = await cluster.controller.take()
    await held.report(hand, "failed")
    await held.fail()
    replacing = await cluster.operate("replace", hand, allocation_ids=[spare])
    held = await cluster.controller.take()
    await take_exit(world, replacing, "cancel")
    assert (await held.complete(undone=True)).status == "cancelled"
    assert await cluster.statuses(hand) == ["failed"]


async def test_members_that_are_given_up_finish_a_removal(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    first, second, _ = await cluster.hands()
    operation = await cluster.operate("remove", first, second)
    held = await cluster.controller.take()
    await held.report(first, "draining")
    failed = await held.fail("needs_operator", "no_answer")
    assert await cluster.statuses(first, second) == ["draining", "ready"]
    part = await take_exit(world, failed, "tombstone", member_ids=[first, first])
    assert part.status == "failed"
    assert [
        event["was"] for event in await cluster.event_payloads("apps.member.changed") if event["status"] == "tombstoned"
    ] == ["draining"]
    assert await cluster.statuses(first, second) == ["tombstoned", "ready"]
    assert (await take_exit(world, operation, "tombstone", member_ids=[second])).status == "succeeded"
    assert await cluster.bound() == await cluster.occupied()


async def test_what_an_operation_concerns_is_read_without_the_members_that_are_long_gone(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    first, second, third = await cluster.hands()
    await cluster.operate("remove", first, second)
    await cluster.controller.carry_out()
    reader = CountingReader(world.site.database.reader)
    await members.of_targets(reader, await cluster.operate("drain", third))
    assert reader.rows == 1
    await cluster.controller.carry_out()
    await members.concerned(reader, await cluster.change("stop"))
    assert reader.rows == 1 + 2 + 2, "head and hand, as targets and as those who live"


@dataclass
class CountingReader:
    """A reader that counts the rows it has returned."""

    reader: db.Reader
    rows: int = 0

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        return await self.reader.one(sql, *values)

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        rows = await self.reader.all(sql, *values)
        self.rows += len(rows)
        return rows


async def test_only_members_of_the_operation_are_given_up_with_it(world: World) -> None:
    cluster = await Cluster.running(world, hands=2)
    first, second = await cluster.hands()
    failed = await cluster.operate("drain", first)
    await (await cluster.controller.take()).fail()
    with pytest.raises(errors.NotFound, match="is not about member"):
        await take_exit(world, failed, "tombstone", member_ids=[second])
    assert await cluster.statuses(first, second) == ["ready", "ready"]


async def test_a_failed_operation_that_later_ones_passed_over_offers_nothing(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (hand,) = await cluster.hands()
    failed = await cluster.operate("drain", hand)
    await (await cluster.controller.take()).fail()
    await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    assert await exits(world, failed) == set()
    for name in operations.EXITS:
        with pytest.raises(errors.ExitUnavailable) as refused:
            await take_exit(world, failed, name)
        assert refused.value.details["exits"] == []


async def test_what_succeeded_or_was_cancelled_has_no_exit(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (hand,) = await cluster.hands()
    done = await cluster.operate("drain", hand)
    await cluster.controller.carry_out()
    cancelled = await cluster.operate("resume", hand)
    await take_exit(world, cancelled, "cancel")
    for operation in (done, cancelled):
        assert (await world.operation(operation.operation_id)).exits == []
        for name in operations.EXITS:
            with pytest.raises(errors.ExitUnavailable):
                await take_exit(world, operation, name)


async def test_a_decommission_that_has_begun_cannot_be_cancelled(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    operation = await cluster.change("decommission")
    await cluster.controller.take()
    assert await exits(world, operation) == {"force_complete"}
    with pytest.raises(errors.ExitUnavailable):
        await take_exit(world, operation, "cancel")


async def test_an_instance_without_members_is_deleted_without_a_controller(world: World) -> None:
    """Nothing of it is on a machine, so no one has to look before the decommission is declared done."""
    cluster = await Cluster.requested(world, hands=1)
    held = await cluster.controller.take()
    for member_id in held.member_ids:
        await held.report(member_id, "provisioning", "failed")
    await take_exit(world, await held.fail(), "tombstone")
    assert await cluster.hands() == []
    operation = await cluster.change("decommission")
    assert await exits(world, operation) == {"cancel", "force_complete"}
    await take_exit(world, operation, "force_complete")
    assert await cluster.status() == "deleted"


async def test_an_upgrade_that_failed_is_not_taken_up_again_past_a_newcomer(world: World) -> None:
    """It would end with a member that it never reached; a new upgrade reaches all."""
    cluster = await Cluster.running(world, hands=1)
    await publish_version(world, "1.1.0", upgrades_from=["1.0.*"])
    failed = await cluster.change("upgrade", version="1.1.0")
    await (await cluster.controller.take()).fail()
    assert "retry" in await exits(world, failed)
    await cluster.add(*await cluster.machines(1))
    await cluster.controller.carry_out()
    assert await exits(world, failed) == set()
    again = await cluster.change("upgrade", version="1.1.0")
    assert len(again.targets) == 3


@pytest.mark.parametrize("name", ["retry", "compensate"])
async def test_an_upgrade_that_failed_keeps_its_exits_when_a_member_is_repaired(
    world: World, name: operations.ExitName
) -> None:
    cluster = await Cluster.running(world, hands=2)
    first, second = await cluster.hands()
    await publish_version(world, "1.1.0", upgrades_from=["1.0.*"])
    failed = await cluster.change("upgrade", version="1.1.0")
    held = await cluster.controller.take()
    await held.report(first, "failed")
    await held.fail()
    before = await exits(world, failed)
    repair = await cluster.operate("repair", first)
    with pytest.raises(errors.OperationInProgress):
        await take_exit(world, failed, name)
    await cluster.controller.carry_out()
    assert await exits(world, failed) == before
    again = await take_exit(world, failed, name)
    assert (again.status, repair.operation_id > again.operation_id) == ("accepted", True)
    assert {await _last_operation(cluster, hand) for hand in (first, second)} == {failed.operation_id}


async def _last_operation(cluster: Cluster, member_id: str) -> str:
    return (await cluster.member(member_id)).last_operation_id


async def test_a_retry_is_refused_what_a_new_request_would_be(world: World) -> None:
    cluster = await Cluster.running(world, hands=2, **with_hands(unavailable_max=1))
    first, second = await cluster.hands()
    removal = await cluster.operate("remove", first)
    await (await cluster.controller.take()).fail()
    await cluster.hold(first, "no_removal", ttl_s=60)
    with pytest.raises(errors.MemberHeld):
        await take_exit(world, removal, "retry")
    draining = await cluster.operate("drain", second)
    world.clock.forward(61)
    with pytest.raises(errors.DisruptionBudget):
        await take_exit(world, removal, "retry")
    await take_exit(world, draining, "cancel")
    assert (await take_exit(world, removal, "retry")).status == "accepted"


async def test_a_retry_of_a_deploy_is_refused_what_policy_denies_by_now(world: World) -> None:
    await world.entitled_app()
    token = await world.service_account()
    deployed = await world.deploy()
    claim = await world.claim(token)
    failed = {"epoch": claim.epoch, "code": "app_failed", "message": "it broke", "failure_class": "repairable"}
    await world.call(runtime.FAIL, failed, token=token, operation_id=deployed.operation.operation_id)
    operation = await world.operation(deployed.operation.operation_id)
    for overlay in ({"apps": {"deny": ["toy"]}}, {"conformance_required": True}):
        await world.call(policy.PROJECT_SET, overlay, headers={"If-Match": "*"})
        with pytest.raises(errors.PolicyDenied):
            await take_exit(world, operation, "retry")
    await world.call(policy.PROJECT_SET, {}, headers={"If-Match": "*"})
    assert (await take_exit(world, operation, "retry")).status == "accepted"


async def test_a_forced_retry_passes_holds_and_budgets_but_not_the_least_of_a_role(world: World) -> None:
    cluster = await Cluster.running(world, hands=3, **with_hands(unavailable_max=1))
    first, second, third = await cluster.hands()
    removal = await cluster.operate("remove", first, second, force=True, reason="the room floods")
    await (await cluster.controller.take()).fail()
    await cluster.hold(first, "no_removal", ttl_s=60)
    other = await cluster.operate("remove", third, force=True, reason="the room floods")
    with pytest.raises(errors.Conflict, match="At least 1 hand must stay"):
        await take_exit(world, removal, "retry")
    await take_exit(world, other, "cancel")
    assert (await take_exit(world, removal, "retry")).status == "accepted"


async def test_each_exit_needs_its_permission_and_a_reason_and_stays_on_the_record(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    operation = await cluster.add(*await cluster.machines(1))
    await (await cluster.controller.take()).fail()
    viewer = await world.person("vic", "viewer", world.project_id)
    member = await world.person("mia", "project_member", world.project_id)
    admin = await world.person("ada", "project_admin", world.project_id)
    seen = await world.call(operations.OPERATION_GET, token=member.token, operation_id=operation.operation_id)
    assert {way.name: way.permitted for way in seen.exits} == {
        "retry": True,
        "compensate": True,
        "tombstone": False,
        "force_complete": False,
    }
    everyday: tuple[operations.ExitName, ...] = ("retry", "compensate")
    against_safety: tuple[operations.ExitName, ...] = ("force_complete", "tombstone")
    for name in (*everyday, *against_safety):
        with pytest.raises(errors.PermissionDenied):
            await take_exit(world, operation, name, token=viewer.token)
        with pytest.raises(errors.ValidationFailed):
            await take_exit(world, operation, name, token=admin.token, reason=" ")
    for name in against_safety:
        with pytest.raises(errors.PermissionDenied):
            await take_exit(world, operation, name, token=member.token)
    await take_exit(world, operation, "retry", token=member.token, reason="the network is back")
    ended = await take_exit(world, operation, "force_complete", token=admin.token, reason="seen by hand")
    taken = [(exit_.name, exit_.taken_by, exit_.reason) for exit_ in ended.exits_taken]
    assert taken == [
        ("retry", member.user_id, "the network is back"),
        ("force_complete", admin.user_id, "seen by hand"),
    ]
    trail = (await world.call(audit.AUDIT_LIST, query={"action": "apps.operation.force_complete"})).items
    assert [(row.actor_id, row.result) for row in trail] == [(admin.user_id, "success")]
    taken_events = await cluster.event_payloads("apps.operation.exit")
    assert [(event["exit"], event["status"]) for event in taken_events] == [
        ("retry", "accepted"),
        ("force_complete", "succeeded"),
    ]


async def test_watchers_receive_that_an_exit_was_taken_before_the_end_that_it_causes(world: World) -> None:
    cluster = await Cluster.running(world, hands=1)
    (machine,) = await cluster.machines(1)
    failed = await _machine_vanishes(cluster, machine)
    await take_exit(cluster.world, failed, "force_complete")
    page = await cluster.world.call(events.EVENT_LIST, query={"limit": 500})
    noted = [event for event in page.items if event.payload.get("operation_id") == failed.operation_id]
    kinds = ("apps.operation.exit", "apps.operation.ended")
    ends = [(event.type, event.payload["status"]) for event in noted if event.type in kinds]
    assert ends == [
        ("apps.operation.ended", "failed"),
        ("apps.operation.exit", "succeeded"),
        ("apps.operation.ended", "succeeded"),
    ]


async def _open_operation(cluster: Cluster, verb: str) -> operations.Operation:
    if verb == "deploy":
        return (await cluster.controller.take()).operation
    await cluster.controller.carry_out()
    await cluster.change(verb)
    return (await cluster.controller.take()).operation
