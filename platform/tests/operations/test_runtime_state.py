"""What a controller reports between operations: the state of its instance and members, and that it is alive."""

import datetime
from typing import Any

import msgspec
import pytest
from gpuaas_contract import errors, instances, operations, runtime
from gpuaas_contract.controllers import CONTROLLER_LIST
from gpuaas_contract.instances import BULK_MAX
from gpuaas_contract.runtime import STEPS_MAX
from gpuaas_platform.kit import db
from gpuaas_platform.operations import store
from platform_world import World
from scripted_controller import Cluster, Controller, evidence


async def _report(cluster: Cluster, controller: Controller | None = None, **body: Any) -> runtime.RuntimeReported:
    """With the revision of the instance as it is now, unless the body has another."""
    body.setdefault("observed_revision", (await cluster.instance()).revision)
    by = controller or cluster.controller
    report = {"holder": by.holder, **body}
    return await cluster.world.call(runtime.RUNTIME_REPORT, report, token=by.token, instance_id=cluster.instance_id)


def _seen(member: instances.Member, status: str, **more: Any) -> dict[str, Any]:
    return {"member_id": member.member_id, "revision": member.revision, "status": status, **more}


async def test_what_happens_to_a_member_by_itself_shows_in_member_and_instance(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = await cluster.member((await cluster.hands())[0])
    reported = await _report(cluster, members=[_seen(hand, "degraded", status_reason="a fan has stopped")])
    assert reported.refused == []
    assert (reported.instance.status, reported.instance.status_reason) == ("degraded", "1 member is degraded")
    (hand,) = reported.members
    assert (hand.status, hand.status_reason) == ("degraded", "a fan has stopped")
    reported = await _report(cluster, members=[_seen(hand, "ready", observed_version="1.0.0")])
    assert (reported.instance.status, reported.members[0].observed_version) == ("running", "1.0.0")
    moves = [(event["was"], event["status"]) for event in await cluster.event_payloads("apps.member.changed")]
    assert moves[-2:] == [("ready", "degraded"), ("degraded", "ready")]
    assert [event["kind"] for event in await cluster.event_payloads("apps.instance.degraded")] == [None]


async def test_an_observation_of_an_older_state_is_refused(world: World) -> None:
    cluster = await Cluster.running(world)
    before = await cluster.member((await cluster.hands())[0])
    await cluster.operate("drain", before.member_id)
    await cluster.controller.carry_out()
    reported = await _report(cluster, members=[_seen(before, "ready")])
    assert [(refused.member_id, refused.code) for refused in reported.refused] == [(before.member_id, "stale")]
    assert await cluster.statuses(before.member_id) == ["drained"]


async def test_a_member_an_operation_works_on_belongs_to_the_holder(world: World) -> None:
    cluster = await Cluster.running(world)
    draining, other = [await cluster.member(member_id) for member_id in await cluster.hands()]
    await cluster.operate("drain", draining.member_id)
    draining = await cluster.member(draining.member_id)
    reported = await _report(cluster, members=[_seen(draining, "failed"), _seen(other, "failed")])
    assert [refused.code for refused in reported.refused] == ["operation_in_progress"]
    assert await cluster.statuses(draining.member_id, other.member_id) == ["ready", "failed"]


async def test_nothing_comes_or_goes_by_itself(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = await cluster.member((await cluster.hands())[0])
    for status in ("requested", "provisioning", "joining", "removing", "removed", "tombstoned"):
        reported = await _report(cluster, members=[_seen(hand, status)])
        assert [refused.code for refused in reported.refused] == ["illegal_move"]
    unknown = {"member_id": "mem_none", "revision": 1, "status": "ready"}
    assert [refused.code for refused in (await _report(cluster, members=[unknown])).refused] == ["not_found"]
    assert await cluster.member(hand.member_id) == hand


async def test_conditions_are_kept_by_type_and_a_change_emits_an_event(world: World) -> None:
    cluster = await Cluster.running(world)
    sound = {"type": "QueueOpen", "status": "true", "reason": "Serving"}
    reported = await _report(cluster, conditions=[sound, {"type": "Licensed", "status": "true"}])
    assert reported.instance.status == "running"
    world.clock.forward(60)
    steady = await _report(cluster, conditions=[sound])
    assert steady.instance == reported.instance
    closed = await _report(cluster, conditions=[{**sound, "status": "false", "message": "the disk is full"}])
    assert (closed.instance.status, closed.instance.status_reason) == ("degraded", "QueueOpen: the disk is full")
    by_type = {condition.type: condition for condition in closed.instance.conditions}
    assert set(by_type) == {"LastOperationSucceeded", "Licensed", "QueueOpen"}
    assert by_type["QueueOpen"].changed_at == world.clock()
    assert by_type["QueueOpen"].observed_revision == steady.instance.revision
    unknown = await _report(cluster, conditions=[{**sound, "status": "unknown"}])
    assert unknown.instance.status == "degraded"
    assert (await _report(cluster, conditions=[sound])).instance.status == "running"
    changes = [(event["was"], event["status"]) for event in await cluster.event_payloads("apps.condition.changed")]
    expected = [("", "true"), ("true", "false"), ("false", "unknown"), ("unknown", "true")]
    assert [change for change in changes if change in expected[1:]] == expected[1:]


async def test_a_controller_cannot_report_the_platforms_own_condition_or_a_future_revision(world: World) -> None:
    cluster = await Cluster.running(world)
    own = {"type": "LastOperationSucceeded", "status": "true"}
    with pytest.raises(errors.ValidationFailed, match="set by the platform itself"):
        await _report(cluster, conditions=[own])
    ahead = (await cluster.instance()).revision + 1
    with pytest.raises(errors.ValidationFailed) as refused:
        await _report(cluster, observed_revision=ahead)
    assert refused.value.details == {"field": "observed_revision"}


async def test_a_report_leaves_a_stopped_instance_stopped(world: World) -> None:
    cluster = await Cluster.running(world)
    await cluster.change("stop")
    await cluster.controller.carry_out()
    reported = await _report(cluster, conditions=[{"type": "QueueOpen", "status": "false"}])
    assert reported.instance.status == "stopped"


async def test_adapter_detail_is_bounded(world: World) -> None:
    cluster = await Cluster.running(world)
    hand = await cluster.member((await cluster.hands())[0])
    with pytest.raises(errors.ValidationFailed) as refused:
        await _report(cluster, members=[_seen(hand, "ready", adapter_detail={"log": "x" * 16_384})])
    assert refused.value.details == {"field": "adapter_detail"}
    reported = await _report(cluster, members=[_seen(hand, "ready", adapter_detail={"slots": 8})])
    assert reported.members[0].adapter_detail == {"slots": 8}


async def test_texts_a_controller_reports_are_bounded_wherever_they_are_stored(world: World) -> None:
    cluster = await Cluster.running(world)
    drained_hand, other = [await cluster.member(member_id) for member_id in await cluster.hands()]
    long = "x" * 100_000
    reported = await _report(cluster, members=[_seen(other, "degraded", status_reason=long)])
    assert len(reported.members[0].status_reason) == 2_000
    await cluster.operate("drain", drained_hand.member_id)
    held = await cluster.controller.take()
    seen = evidence(world.clock(), detail=long, work_digest=long) | {"source": long}
    await held.report(drained_hand.member_id, "draining", status_reason=long, evidence=seen)
    drained = await cluster.member(drained_hand.member_id)
    noted = (await world.operation(held.operation_id)).targets[0].evidence
    assert noted is not None
    assert {len(text) for text in (drained.status_reason, noted.detail, noted.source, noted.work_digest)} == {2_000}
    await held.send(runtime.STEP_REPORT, {"name": "wait", "state": "running", "message": long})
    assert [len(step["message"]) for step in await cluster.event_payloads("apps.operation.step")] == [2_000]
    for field, request in {
        "name": held.step(long),
        "member_id": held.step("wait", member_id=long),
        "holder": _report(cluster, holder=long),
        "observed_version": held.report(drained_hand.member_id, "draining", observed_version=long),
        "code": held.fail(code=long),
        "reason": cluster.operate("drain", other.member_id, reason=long),
    }.items():
        with pytest.raises(errors.ValidationFailed) as refused:
            await request
        assert refused.value.details["field"] == field
    failure = {"code": "stuck", "message": long, "failure_class": "repairable", "fix": long}
    error = (await held.send(runtime.FAIL, failure)).error
    assert error is not None
    assert (len(error.message), len(error.fix)) == (2_000, 2_000)


async def test_the_largest_operation_has_room_for_the_steps_of_every_member(world: World) -> None:
    cluster = await Cluster.running(world)
    operation = await cluster.operate("drain", *await cluster.hands())
    held = await cluster.controller.take()
    three_each = [_step(f"step {at}") for at in range(3 * BULK_MAX)]
    await _with_steps(world, operation.operation_id, three_each)
    await held.step("one more")
    assert (await world.operation(operation.operation_id)).steps_total == 3 * BULK_MAX + 1
    await _with_steps(world, operation.operation_id, [_step(f"step {at}") for at in range(3 * BULK_MAX, STEPS_MAX - 1)])
    with pytest.raises(errors.ValidationFailed, match=f"at most {STEPS_MAX} steps"):
        await held.step("one too many")


def _step(name: str) -> operations.Step:
    started_at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    return operations.Step(name=name, state="succeeded", started_at=started_at)


async def _with_steps(world: World, operation_id: str, steps: list[operations.Step]) -> None:
    """As it would be after so many more reports."""

    async def put(tx: db.Tx) -> None:
        present = await store.get(tx, operation_id)
        assert present is not None
        for step in steps:
            present = msgspec.structs.replace(present, steps_total=present.steps_total + 1)
            await store.add_step(tx, present, step)
        await store.save(tx, present)

    await world.site.database.write(put)


async def test_an_instance_has_a_bounded_number_of_conditions(world: World) -> None:
    cluster = await Cluster.running(world)
    for first in range(0, 64, 32):
        conditions = [{"type": f"Fact{first + at}", "status": "true"} for at in range(32)]
        await _report(cluster, conditions=conditions)
    with pytest.raises(errors.ValidationFailed, match="at most 64 conditions"):
        await _report(cluster, conditions=[{"type": "OneMore", "status": "true"}])
    await _report(cluster, conditions=[{"type": "Fact0", "status": "false"}])


async def test_only_a_service_account_of_the_project_reports(world: World) -> None:
    cluster = await Cluster.running(world)
    member = await world.person("mia", "project_member", world.project_id)
    with pytest.raises(errors.PermissionDenied):
        await _report(cluster, Controller(world, member.token))


async def test_people_see_when_each_controller_was_last_seen(world: World) -> None:
    cluster = await Cluster.running(world)
    second = await Controller.start(world, "second")
    world.clock.forward(4)
    assert await second.finds_nothing()
    controllers = {controller.holder: controller for controller in (await world.call(CONTROLLER_LIST)).items}
    assert set(controllers) == {"controller", "second"}
    ages_s = {
        name: (world.clock() - controller.last_seen_at).total_seconds() for name, controller in controllers.items()
    }
    assert ages_s == {"controller": 4, "second": 0}
    await cluster.operate("drain", (await cluster.hands())[0])
    held = await cluster.controller.take()
    world.clock.forward(7)
    await held.heartbeat()
    world.clock.forward(2)
    controllers = {controller.holder: controller for controller in (await world.call(CONTROLLER_LIST)).items}
    ages_s = {
        name: (world.clock() - controller.last_seen_at).total_seconds() for name, controller in controllers.items()
    }
    assert ages_s == {"controller": 2, "second": 9}


async def test_a_controller_reports_its_version_and_a_heartbeat_keeps_it(world: World) -> None:
    cluster = await Cluster.requested(world)
    body = runtime.ClaimOperation(app_slug="toy", holder="versioned", claim_id="one", controller_version="0.3.1")
    claim = await world.call(runtime.CLAIM, body, token=cluster.controller.token)
    assert claim.operation is not None
    beat = {"epoch": claim.epoch}
    operation_id = claim.operation.operation_id
    await world.call(runtime.HEARTBEAT, beat, token=cluster.controller.token, operation_id=operation_id)
    (controller,) = (await world.call(CONTROLLER_LIST)).items
    assert (controller.holder, controller.version, controller.app_slug) == ("versioned", "0.3.1", "toy")
