"""Operations on members: who excludes whom, bulk with and without a stop rule, breaker, budget, and replace."""

import itertools

import pytest
from gpuaas_contract import audit, errors, instances, operations
from platform_world import World
from scripted_controller import Cluster, Controller, evidence, exits, take_exit, with_hands

BULK = 64
BAD = (2, 3, 10, 20, 30)
"""Places of the five that do not join."""


async def test_a_member_goes_out_of_service_back_in_and_away(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    for kind, status in (("drain", "drained"), ("resume", "ready"), ("remove", "removed")):
        await cluster.operate(kind, hand)
        ended = await cluster.controller.carry_out()
        assert (ended.kind, ended.status, ended.progress.done) == (kind, "succeeded", 1)
        assert (await cluster.statuses(hand), await cluster.status()) == ([status], "running")
    assert await cluster.bound() == await cluster.occupied()
    moves = [(event["was"], event["status"]) for event in await cluster.event_payloads("apps.member.changed")]
    assert moves[-5:] == list(itertools.pairwise(["ready", "draining", "drained", "ready", "removing", "removed"]))


async def test_overlapping_operations_on_one_member_are_refused_and_the_holder_is_named(world: World) -> None:
    cluster = await Cluster.running(world)
    first, second = await cluster.hands()
    draining = await cluster.operate("drain", first)
    for kind in ("drain", "resume", "remove"):
        with pytest.raises(errors.OperationInProgress) as refused:
            await cluster.operate(kind, first)
        assert refused.value.details == {
            "operation_id": draining.operation_id,
            "kind": "drain",
            "members": [first],
        }
    with pytest.raises(errors.OperationInProgress):
        await cluster.operate("drain", second, first)
    await cluster.operate("drain", second)
    await cluster.add(*await cluster.machines(1))
    assert [(await cluster.controller.take()).operation.kind for _ in range(3)] == ["drain", "drain", "add"]


@pytest.mark.parametrize("verb", ["stop", "restart", "decommission"])
async def test_an_instance_operation_waits_for_members_and_the_reverse(world: World, verb: str) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    draining = await cluster.operate("drain", hand)
    with pytest.raises(errors.OperationInProgress) as refused:
        await cluster.change(verb)
    assert refused.value.details["operation_id"] == draining.operation_id
    await cluster.controller.carry_out()
    whole = await cluster.change(verb)
    for _ in ("waiting", "held"):
        with pytest.raises((errors.OperationInProgress, errors.Conflict)):
            await cluster.operate("resume", hand)
        with pytest.raises(errors.OperationInProgress) as held:
            await cluster.change("decommission")
        assert held.value.details["operation_id"] == whole.operation_id
        await cluster.controller.take()


async def test_a_bulk_add_of_64_continues_after_5_failures_without_a_stop_rule(world: World) -> None:
    cluster = await _large(world)
    operation = await cluster.add(*await cluster.machines(BULK))
    held = await cluster.controller.take()
    for place, member_id in enumerate(held.member_ids):
        await held.report(member_id, "provisioning", *(["failed"] if place in BAD else ["joining", "ready"]))
    ended = await held.complete()
    assert ended.error is not None
    assert (ended.status, ended.error.code) == ("failed", "targets_failed")
    assert ended.error.message == "59 of 64 done, 5 failed."
    assert [place for place, target in enumerate(ended.targets) if target.outcome == "failed"] == list(BAD)
    assert (ended.progress.done, ended.progress.total) == (BULK, BULK)
    assert await cluster.bound() == await cluster.occupied()
    await take_exit(world, operation, "retry")
    again = await cluster.controller.take()
    pending = [target.member_id for target in again.operation.targets if target.outcome == "pending"]
    assert pending == [held.member_ids[place] for place in BAD]
    await again.bring(pending)
    assert (await again.complete()).status == "succeeded"
    assert len(await cluster.hands()) == BULK + 1


async def test_a_bulk_add_of_64_with_stop_rule_3_skips_the_members_not_begun(world: World) -> None:
    cluster = await _large(world)
    await cluster.add(*await cluster.machines(BULK), stop_after_failures=3)
    held = await cluster.controller.take()
    begun = held.member_ids[:12]
    for member_id in begun:
        await held.report(member_id, "provisioning")
    await held.step("rack", "running", held.member_ids[12])
    for place, member_id in enumerate(begun):
        await held.report(member_id, *(["failed"] if place in BAD else ["joining", "ready"]))
    with pytest.raises(errors.Conflict, match="was skipped: 3 members failed before its turn"):
        await held.report(held.member_ids[-1], "provisioning")
    with pytest.raises(errors.Conflict, match="is not done"):
        await held.complete()
    await held.bring(held.member_ids[12:13])
    ended = await held.complete()
    assert ended.error is not None
    assert ended.error.message == "10 of 64 done, 3 failed, 51 not started because of the stop rule."
    outcomes = [target.outcome for target in ended.targets]
    assert [outcomes.count(name) for name in ("succeeded", "failed", "skipped")] == [10, 3, 51]
    skipped = [target.member_id for target in ended.targets if target.outcome == "skipped"]
    assert set(await cluster.statuses(*skipped)) == {"removed"}
    assert await cluster.bound() == await cluster.occupied()
    assert len(await cluster.bound()) == 2 + 13


async def test_a_stopped_drain_leaves_the_rest_in_service_and_a_retry_takes_them_up(world: World) -> None:
    cluster = await Cluster.running(world, hands=4)
    first, *others = await cluster.hands()
    operation = await cluster.operate("drain", first, *others, stop_after_failures=1)
    held = await cluster.controller.take()
    await held.report(first, "draining", "failed")
    ended = await held.complete()
    assert [target.outcome for target in ended.targets] == ["failed", "skipped", "skipped", "skipped"]
    assert await cluster.statuses(first, *others) == ["failed", "ready", "ready", "ready"]
    await take_exit(world, operation, "retry")
    again = await cluster.controller.take()
    await again.report(first, "ready", "draining", "drained")
    await again.bring(others)
    assert (await again.complete()).status == "succeeded"


async def test_the_breaker_opens_refuses_emits_an_event_and_closes_when_its_window_has_passed(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 3, "window_s": 100}))
    machines = await cluster.machines(4)
    await _fail_to_join(cluster, *machines[:2])
    world.clock.forward(60)
    assert not (await _hand_role(cluster)).breaker.open
    await _fail_to_join(cluster, machines[2])
    role = await _hand_role(cluster)
    assert (role.breaker.open, role.breaker.failures, role.ready) == (True, 3, 2)
    with pytest.raises(errors.CircuitOpen) as refused:
        await cluster.add(machines[3])
    assert role.breaker.closes_at is not None
    assert refused.value.details["closes_at"] == role.breaker.closes_at.isoformat()
    hand = (await cluster.hands())[0]
    with pytest.raises(errors.CircuitOpen):
        await cluster.operate("replace", hand, allocation_ids=machines[3:])
    assert [(event["open"], event["failures"]) for event in await cluster.event_payloads("apps.role.breaker")] == [
        (True, 3)
    ]
    await cluster.operate("drain", hand)
    assert (await cluster.controller.carry_out()).status == "succeeded"
    world.clock.forward(39)
    with pytest.raises(errors.CircuitOpen):
        await cluster.add(machines[3])
    world.clock.forward(1)
    await cluster.add(machines[3])
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_failures_after_the_breaker_has_opened_do_not_announce_it_again(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 2, "window_s": 100}))
    await cluster.add(*await cluster.machines(4))
    held = await cluster.controller.take()
    for member_id in held.member_ids:
        await held.report(member_id, "provisioning", "failed")
    assert (await _hand_role(cluster)).breaker.failures == 4
    assert [(event["open"], event["failures"]) for event in await cluster.event_payloads("apps.role.breaker")] == [
        (True, 2)
    ]


async def test_an_add_that_fails_as_a_whole_counts_for_the_breaker_what_was_begun(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 2, "window_s": 100}))
    await cluster.add(*await cluster.machines(3))
    held = await cluster.controller.take()
    for member_id in held.member_ids[:2]:
        await held.report(member_id, "provisioning")
    await held.fail("lost")
    assert (await _hand_role(cluster)).breaker.failures == 2
    assert len(await cluster.event_payloads("apps.role.breaker")) == 1


async def test_a_retry_of_an_add_is_refused_by_an_open_breaker_like_a_new_one(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 1, "window_s": 100}))
    added = await cluster.add(*await cluster.machines(1))
    held = await cluster.controller.take()
    await held.report(held.member_ids[0], "provisioning")
    await held.fail("lost")
    with pytest.raises(errors.CircuitOpen):
        await take_exit(world, added, "retry")
    params = {"instance_id": cluster.instance_id, "component_key": "hand"}
    await world.call(instances.BREAKER_RESET, {"reason": "the cable is in again"}, **params)
    await take_exit(world, added, "retry")
    assert (await cluster.controller.carry_out()).status == "succeeded"


async def test_a_breaker_is_reset_with_a_reason_that_stays_on_the_record(world: World) -> None:
    cluster = await Cluster.running(world, **with_hands(breaker={"failures": 1, "window_s": 100}))
    machines = await cluster.machines(2)
    await _fail_to_join(cluster, machines[0])
    params = {"instance_id": cluster.instance_id, "component_key": "hand"}
    with pytest.raises(errors.ValidationFailed):
        await world.call(instances.BREAKER_RESET, {"reason": ""}, **params)
    viewer = await world.person("vic", "viewer", world.project_id)
    with pytest.raises(errors.PermissionDenied):
        await world.call(instances.BREAKER_RESET, {"reason": "x"}, token=viewer.token, **params)
    role = await world.call(instances.BREAKER_RESET, {"reason": "the image is repaired"}, **params)
    assert not role.breaker.open
    changes = [(event["open"], event["reason"]) for event in await cluster.event_payloads("apps.role.breaker")]
    assert changes == [(True, "no route"), (False, "the image is repaired")]
    trail = (await world.call(audit.AUDIT_LIST, query={"action": "apps.role.reset_breaker", "result": "success"})).items
    assert len(trail) == 1
    await cluster.add(machines[1])


async def test_an_exclusive_operation_of_a_role_runs_alone(world: World) -> None:
    cluster = await Cluster.running(world, hands=3, **with_hands(exclusive=["replace"]))
    first, second, third = await cluster.hands()
    [spare] = await cluster.machines(1)
    drained = await cluster.operate("drain", first)
    with pytest.raises(errors.OperationInProgress) as refused:
        await cluster.operate("replace", second, allocation_ids=[spare])
    assert refused.value.details["operation_id"] == drained.operation_id
    await cluster.controller.carry_out()
    alone = await cluster.operate("replace", second, allocation_ids=[spare])
    assert alone.exclusive
    with pytest.raises(errors.OperationInProgress) as waits:
        await cluster.operate("drain", third)
    assert waits.value.details["operation_id"] == alone.operation_id


async def test_overlapping_operations_together_keep_the_disruption_budget(world: World) -> None:
    cluster = await Cluster.running(world, hands=4, **with_hands(unavailable_max=2))
    first, second, third, fourth = await cluster.hands()
    await cluster.operate("drain", first)
    await cluster.operate("drain", second)
    with pytest.raises(errors.DisruptionBudget) as refused:
        await cluster.operate("drain", third)
    assert refused.value.details == {"unavailable": sorted([first, second]), "unavailable_max": 2}
    with pytest.raises(errors.DisruptionBudget):
        await cluster.operate("remove", third)
    for _ in range(2):
        await cluster.controller.carry_out()
    with pytest.raises(errors.DisruptionBudget):
        await cluster.operate("replace", third, allocation_ids=await cluster.machines(1))
    await cluster.operate("remove", first)
    await cluster.controller.carry_out()
    await cluster.operate("drain", third)
    await cluster.controller.carry_out()
    forced = await cluster.operate("drain", fourth, force=True, reason="the room floods")
    assert (await cluster.controller.carry_out()).operation_id == forced.operation_id
    assert await cluster.statuses(second, third, fourth) == ["drained", "drained", "drained"]


async def test_a_role_keeps_its_least_and_its_most(world: World) -> None:
    cluster = await Cluster.running(world, hands=2, **with_hands(max=2))
    first, second = await cluster.hands()
    with pytest.raises(errors.Conflict, match="at most 2 hand"):
        await cluster.add(*await cluster.machines(1))
    with pytest.raises(errors.Conflict, match="At least 1 hand must stay"):
        await cluster.operate("remove", first, second)


async def test_removals_that_overlap_together_leave_a_role_its_least(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    first, second, third = await cluster.hands()
    removing = await cluster.operate("remove", first, second)
    with pytest.raises(errors.Conflict, match="At least 1 hand must stay"):
        await cluster.operate("remove", third)
    await take_exit(world, removing, "cancel")
    await cluster.operate("remove", second, third)


async def test_a_removal_that_is_retried_leaves_a_role_its_least_too(world: World) -> None:
    cluster = await Cluster.running(world, hands=3)
    first, second, third = await cluster.hands()
    failed = await cluster.operate("remove", first, second)
    await (await cluster.controller.take()).fail()
    await cluster.operate("remove", third)
    await cluster.controller.carry_out()
    with pytest.raises(errors.Conflict, match="At least 1 hand must stay"):
        await take_exit(world, failed, "retry")


async def test_a_request_that_makes_no_sense_is_refused_with_why(world: World) -> None:
    cluster = await Cluster.running(world)
    first, second = await cluster.hands()
    head = next(member for member in (await cluster.members()).values() if member.component_key == "head")
    (machine,) = await cluster.machines(1)
    taken = (await cluster.member(first)).allocation_id
    refused: list[tuple[type[errors.ApiError], str, dict[str, object]]] = [
        (errors.ValidationFailed, "contains an id twice", {"kind": "drain", "member_ids": [first, first]}),
        (
            errors.ValidationFailed,
            "and nothing else",
            {"kind": "drain", "member_ids": [first], "allocation_ids": ["x"]},
        ),
        (errors.ValidationFailed, "different roles", {"kind": "drain", "member_ids": [first, head.member_id]}),
        (errors.ValidationFailed, "no role", {"kind": "add", "component_key": "foot", "allocation_ids": [machine]}),
        (errors.Conflict, "does not offer remove for head", {"kind": "remove", "member_ids": [head.member_id]}),
        (errors.Conflict, "already has the hand", {"kind": "add", "component_key": "hand", "allocation_ids": [taken]}),
        (
            errors.Conflict,
            "already has the hand",
            {"kind": "replace", "member_ids": [first], "allocation_ids": [taken]},
        ),
        (
            errors.ValidationFailed,
            "as many allocation_ids",
            {"kind": "replace", "member_ids": [first, second], "allocation_ids": [machine]},
        ),
        (errors.NotFound, "no member", {"kind": "drain", "component_key": "hand", "member_ids": ["mem_none"]}),
        (errors.ValidationFailed, "drain names member_ids, and nothing else", {"kind": "drain"}),
        (errors.NotFound, "no member mem_none", {"kind": "drain", "member_ids": [first, "mem_none"]}),
        (errors.ValidationFailed, "name the role: head, hand", {"kind": "add", "allocation_ids": [machine]}),
        (errors.NotFound, "no allocation", {"kind": "add", "component_key": "hand", "allocation_ids": ["alloc_none"]}),
    ]
    for kind, why, body in refused:
        with pytest.raises(kind, match=why):
            await world.call(instances.MEMBER_OPERATION_CREATE, body, instance_id=cluster.instance_id)
    assert await cluster.controller.finds_nothing()
    assert await cluster.bound() == await cluster.occupied()


async def test_a_replaced_member_keeps_its_name_and_gives_its_old_machine_back(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    before = await cluster.member(hand)
    (machine,) = await cluster.machines(1)
    await cluster.operate("replace", hand, allocation_ids=[machine])
    assert await cluster.bound() == await cluster.occupied() | {machine}
    held = await cluster.controller.take()
    with pytest.raises(errors.Conflict, match="ready on its new machine"):
        await held.complete()
    await held.enter(machine)
    ended = await held.carry_out()
    after = await cluster.member(hand)
    assert (ended.status, after.status, after.allocation_id) == ("succeeded", "ready", machine)
    assert (after.member_id, after.node_name) == (before.member_id, "spare-0")
    assert (ended.targets[0].previous_allocation_id, ended.targets[0].allocation_id) == (before.allocation_id, machine)
    assert await cluster.bound() == await cluster.occupied()


async def test_a_replace_that_tries_its_new_machine_twice_still_gives_the_old_one_back(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    await cluster.operate("replace", hand, allocation_ids=await cluster.machines(1))
    held = await cluster.controller.take()
    await held.report(hand, "removing", "provisioning", "failed", evidence=evidence(world.clock()))
    await held.report(hand, "removing", "provisioning", "joining", "ready")
    assert (await held.complete()).status == "succeeded"
    assert await cluster.bound() == await cluster.occupied()


async def test_a_replace_that_failed_before_the_move_is_taken_up_again_on_the_same_machine(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    (machine,) = await cluster.machines(1)
    operation = await cluster.operate("replace", hand, allocation_ids=[machine])
    held = await cluster.controller.take()
    await held.report(hand, "draining", "drained")
    await held.fail()
    assert machine not in await cluster.bound()
    assert await cluster.statuses(hand) == ["drained"]
    await take_exit(world, operation, "retry")
    assert machine in await cluster.bound()
    ended = await cluster.controller.carry_out()
    assert (ended.status, (await cluster.member(hand)).allocation_id) == ("succeeded", machine)
    assert await cluster.bound() == await cluster.occupied()


async def test_a_repair_takes_no_exit_of_a_failed_replace(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = (await cluster.hands())[0]
    (machine,) = await cluster.machines(1)
    operation = await cluster.operate("replace", hand, allocation_ids=[machine])
    await (await cluster.controller.take()).fail()
    await cluster.operate("repair", hand)
    await (await cluster.controller.take()).fail()
    await take_exit(world, operation, "retry")
    ended = await cluster.controller.carry_out()
    assert (ended.status, (await cluster.member(hand)).allocation_id) == ("succeeded", machine)
    assert await cluster.bound() == await cluster.occupied()


async def test_a_replace_that_failed_after_the_move_is_retried_or_undone_on_the_new_machine(world: World) -> None:
    cluster = await Cluster.running(world, hands=2)
    ways: list[tuple[operations.ExitName, list[str], str]] = [
        ("retry", ["provisioning", "joining", "ready"], "succeeded"),
        ("compensate", ["removing", "removed"], "cancelled"),
    ]
    machines = await cluster.machines(2)
    for hand, machine, (way, statuses, expected) in zip(await cluster.hands(), machines, ways, strict=True):
        operation = await cluster.operate("replace", hand, allocation_ids=[machine])
        held = await cluster.controller.take()
        await held.report(hand, "removing", "provisioning", evidence=evidence(world.clock()))
        await held.fail()
        assert (await cluster.member(hand)).allocation_id == machine
        assert (await cluster.statuses(hand), await cluster.status()) == (["failed"], "degraded")
        assert await cluster.bound() == await cluster.occupied()
        assert await exits(world, operation) == {"retry", "compensate", "force_complete", "tombstone"}
        await take_exit(world, operation, way)
        again = await cluster.controller.take()
        await again.report(hand, *statuses)
        assert (await again.complete()).status == expected
        assert await cluster.bound() == await cluster.occupied()
    assert await cluster.status() == "running"


async def test_two_members_of_a_role_never_meet_on_one_machine(world: World) -> None:
    cluster = await Cluster.running(world, hands=2)
    first, second = await cluster.hands()
    (machine,) = await cluster.machines(1)
    replace = await cluster.operate("replace", first, allocation_ids=[machine])
    with pytest.raises(errors.Conflict, match=f"{machine} is kept for member {first}"):
        await cluster.operate("replace", second, allocation_ids=[machine])
    with pytest.raises(errors.Conflict, match=f"{machine} is kept for member {first}"):
        await cluster.add(machine)
    await (await cluster.controller.take()).fail()
    await cluster.add(machine)
    await cluster.controller.carry_out()
    with pytest.raises(errors.Conflict, match=f"{machine}. already has the hand"):
        await take_exit(world, replace, "retry")
    await take_exit(world, replace, "compensate")
    undoing = await cluster.controller.take()
    await undoing.report(first, "removing", evidence=evidence(world.clock()))
    with pytest.raises(errors.Conflict, match="not being undone"):
        await undoing.report(first, "provisioning")
    await undoing.report(first, "removed")
    assert (await undoing.complete()).status == "cancelled"
    assert await cluster.bound() == await cluster.occupied()


async def test_a_machine_that_a_member_will_move_to_stays_bound_when_another_member_leaves_it(world: World) -> None:
    cluster = await Cluster.running(world)
    hand, _ = await cluster.hands()
    (head,) = set(await cluster.members()) - set(await cluster.hands())
    machine = (await cluster.member(hand)).allocation_id
    await cluster.operate("replace", head, allocation_ids=[machine])
    moving = await cluster.controller.take()
    await cluster.operate("remove", hand)
    await cluster.controller.carry_out()
    assert machine in await cluster.bound() - await cluster.occupied()
    await moving.carry_out()
    assert (await cluster.member(head)).allocation_id == machine
    assert await cluster.bound() == await cluster.occupied()


async def test_a_cancelled_replace_puts_the_member_back_or_finishes_the_move(world: World) -> None:
    cluster = await Cluster.running(world, hands=2)
    first, second = await cluster.hands()
    machines = await cluster.machines(2)
    early = await cluster.operate("replace", first, allocation_ids=machines[:1])
    held = await cluster.controller.take()
    await held.report(first, "draining")
    await take_exit(world, early, "cancel")
    await held.report(first, "ready")
    assert (await held.complete()).status == "cancelled"
    late = await cluster.operate("replace", second, allocation_ids=machines[1:])
    held = await cluster.controller.take()
    await held.report(second, "removing", "provisioning", "joining", evidence=evidence(world.clock()))
    await take_exit(world, late, "cancel")
    await held.report(second, "ready")
    assert (await held.complete()).status == "succeeded"
    assert await cluster.bound() == await cluster.occupied()


async def test_a_second_controller_takes_over_in_the_middle_and_finished_steps_stay(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.add(*await cluster.machines(1))
    first = await cluster.controller.take(lease_s=5)
    (newcomer,) = first.member_ids
    await first.step("install", "succeeded", newcomer)
    await first.report(newcomer, "provisioning")
    world.clock.forward(6)
    second = await (await Controller.start(world, "second")).take()
    assert [(step.name, step.state) for step in second.operation.steps] == [("install", "succeeded")]
    assert (second.operation.attempts, second.claim.epoch) == (2, 2)
    await second.report(newcomer, "joining", "ready")
    assert (await second.complete()).status == "succeeded"


async def _large(world: World) -> Cluster:
    return await Cluster.running(world, hands=1, **with_hands(breaker={"failures": 1000}))


async def _fail_to_join(cluster: Cluster, *machines: str) -> None:
    await cluster.add(*machines)
    held = await cluster.controller.take()
    for member_id in held.member_ids:
        await held.report(member_id, "provisioning")
        await held.report(member_id, "failed", status_reason="no route")
    assert (await held.complete()).status == "failed"


async def _hand_role(cluster: Cluster) -> instances.Role:
    roles = await cluster.world.call(instances.ROLE_LIST, instance_id=cluster.instance_id)
    return next(role for role in roles.items if role.component_key == "hand")
