"""One behaviour, two platforms: what the SDK's platform in memory answers to a controller, the real one answers too.

Every test runs on the one for app teams and on this one, over both engines."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from both_platforms import Side, hands, sides
from gpuaas_contract import (
    errors,
    lifecycles,
    operations,
    placements,
    runtime,
    secrets,
)
from gpuaas_contract.controllers import CONTROLLER_LIST, CONTROLLER_LOG
from gpuaas_contract.endpoint import Endpoint
from gpuaas_sdk.controller import rules
from scripted_controller import Held, evidence

__all__ = ["sides"]


def outcomes(operation: operations.Operation) -> list[str]:
    return [target.outcome for target in operation.targets]


def idle(held: Held) -> Any:
    return evidence(held.world.clock())


async def observe(side: Side, **reported: Any) -> runtime.RuntimeReported:
    instance = await side.instance()
    body = {"holder": "controller", "observed_revision": instance.revision, **reported}
    where = {"instance_id": instance.instance_id}
    return await side.controller.world.call(runtime.RUNTIME_REPORT, body, token=side.controller.token, **where)


async def test_a_heartbeat_reports_a_cancel_which_ends_when_all_is_undone(sides: tuple[Side, Side]) -> None:
    for side in sides:
        asked = await side.add(2)
        held = await side.controller.take()
        begun, waiting = held.member_ids
        await held.report(begun, "provisioning")
        assert not (await held.heartbeat()).cancel_requested
        assert (await side.leave(asked, "cancel")).status == "cancelling"
        assert (await held.heartbeat()).cancel_requested
        with pytest.raises(errors.Conflict, match=f"{begun} is provisioning"):
            await held.complete()
        await held.report(begun, "removing", "removed")
        await held.report(waiting, "removed")
        ended = await held.complete()
        assert (ended.status, outcomes(ended)) == ("cancelled", ["cancelled", "cancelled"]), side
        assert (await side.instance()).status == "running"


async def test_when_members_cannot_show_it_the_controller_reports_whether_it_turned_back(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        for undone, status in ((True, "cancelled"), (False, "succeeded")):
            asked = await side.change("restart")
            held = await side.controller.take()
            await side.leave(asked, "cancel")
            ended = await held.complete(undone=undone)
            assert (ended.status, ended.exits_taken[0].too_late) == (status, not undone), side


async def test_a_claim_that_takes_over_a_cancelled_operation_reports_the_cancel(sides: tuple[Side, Side]) -> None:
    for side in sides:
        asked = await side.add(1)
        held = await side.controller.take(lease_s=5)
        await side.leave(asked, "cancel")
        held.world.clock.forward(6)
        taken_over = await side.controller.take()
        assert taken_over.operation.status == "cancelling", side
        assert taken_over.operation.lease is not None
        assert taken_over.operation.lease.cancel_requested
        await taken_over.report(taken_over.member_ids[0], "removed")
        assert (await taken_over.complete()).status == "cancelled"


async def test_an_operation_without_a_claim_is_cancelled_at_once(sides: tuple[Side, Side]) -> None:
    for side in sides:
        cancelled = await side.leave(await side.add(1), "cancel")
        assert (cancelled.status, outcomes(cancelled)) == ("cancelled", ["cancelled"]), side
        assert await side.controller.finds_nothing()
        assert len(await hands(side)) == 2


async def test_a_failed_operation_is_undone_under_a_new_claim(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(1)
        held = await side.controller.take()
        member_id = held.member_ids[0]
        await held.report(member_id, "provisioning")
        failed = await held.fail()
        assert (failed.status, outcomes(failed)) == ("failed", ["failed"]), side
        assert (await side.instance()).status == "degraded"
        reopened = await side.leave(failed, "compensate")
        assert (reopened.status, reopened.compensating, outcomes(reopened)) == ("accepted", True, ["pending"])
        undoing = await side.controller.take()
        assert (undoing.operation.compensating, undoing.claim.epoch > held.claim.epoch) == (True, True)
        with pytest.raises(errors.ExitUnavailable):
            await side.leave(reopened, "cancel")
        with pytest.raises(errors.Conflict, match=f"{member_id} is failed"):
            await undoing.complete()
        await undoing.report(member_id, "removing", "removed")
        assert (await undoing.complete()).status == "cancelled"


async def test_a_retry_keeps_the_steps_and_asks_for_what_is_left(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(2)
        held = await side.controller.take()
        done, broken = held.member_ids
        await held.step("install", member_id=done)
        await held.report(done, "provisioning", "joining", "ready")
        await held.report(broken, "failed", status_reason="no GPU answers")
        ended = await held.complete()
        assert ended.error is not None
        assert (ended.status, ended.error.code, ended.error.failure_class) == ("failed", "targets_failed", "repairable")
        assert [target.error for target in ended.targets] == ["", "no GPU answers"]
        await side.leave(ended, "retry")
        again = await side.controller.take()
        assert (again.operation.attempts, outcomes(again.operation)) == (2, ["succeeded", "pending"]), side
        assert [step.name for step in again.operation.steps] == ["install"]
        await again.report(broken, "provisioning", "joining", "ready")
        assert (await again.complete()).status == "succeeded"


@pytest.mark.parametrize("way", ["retry", "compensate"])
async def test_a_retry_after_a_repair_repeats_what_the_repair_may_have_undone(
    sides: tuple[Side, Side], way: operations.ExitName
) -> None:
    for side in sides:
        clock, (first, second) = side.controller.world.clock, await hands(side)
        await side.reconfigure()
        held = await side.controller.take()
        await held.step("change the settings")
        await held.bring([first, second])
        failed = await held.fail()
        assert sorted(outcomes(failed)) == ["failed", "succeeded", "succeeded"], side
        await side.operate("repair", second)
        await side.controller.carry_out()
        clock.forward(1)
        await side.leave(failed, way)
        again = await side.controller.take()
        kept = "succeeded" if way == "retry" else "pending"
        shown = {target.member_id: target.outcome for target in again.operation.targets}
        assert (shown[first], shown[second]) == (kept, "pending"), side
        assert rules.finished_steps(again.operation) == set(), side
        clock.forward(1)
        await again.step("change the settings", "running")
        await again.step("change the settings")
        clock.forward(60)
        taken_over = await side.controller.take()
        assert rules.finished_steps(taken_over.operation) == {("change the settings", "")}, side
        assert [step.attempt for step in taken_over.operation.steps] == [2], side


async def test_the_stop_rule_skips_those_not_begun(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(4, stop_after_failures=2)
        held = await side.controller.take()
        done, first, second, waiting = held.member_ids
        await held.report(done, "provisioning", "joining", "ready")
        await held.report(first, "provisioning", "failed")
        await held.report(second, "failed")
        with pytest.raises(errors.Conflict, match="was skipped: 2 members failed before its turn"):
            await held.report(waiting, "provisioning")
        ended = await held.complete()
        assert (ended.status, outcomes(ended)) == ("failed", ["succeeded", "failed", "failed", "skipped"]), side
        assert (ended.progress.done, ended.progress.total) == (4, 4)
        assert waiting not in await hands(side)


@pytest.mark.parametrize(
    ("seen", "refusal"),
    [
        (None, errors.EvidenceMissing),
        ({"age_s": 121}, errors.EvidenceStale),
        ({"age_s": -6}, errors.EvidenceStale),
        ({"state": "busy"}, errors.EvidenceBusy),
        ({"running_work": 1}, errors.EvidenceBusy),
        ({"state": "unknown"}, errors.EvidenceUnknown),
        ({"state": "unreachable"}, errors.EvidenceUnknown),
    ],
)
async def test_a_member_that_ran_work_is_taken_away_on_fresh_evidence_only(
    sides: tuple[Side, Side], seen: dict[str, Any] | None, refusal: type[errors.EvidenceRequired]
) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        await side.operate("remove", member_id)
        held = await side.controller.take()
        shown = {} if seen is None else {"evidence": evidence(held.world.clock(), **seen)}
        with pytest.raises(refusal) as refused:
            await held.report(member_id, "removing", **shown)
        assert refused.value.code == refusal.code, side
        await held.report(member_id, "removing", evidence=idle(held))
        await held.report(member_id, "removed")
        ended = await held.complete()
        assert ended.status == "succeeded"
        assert ended.targets[0].evidence is not None


async def test_a_replaced_member_moves_to_its_new_allocation_and_keeps_its_id(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        asked = await side.replace(member_id)
        held = await side.controller.take()
        before = next(member for member in held.claim.members if member.member_id == member_id)
        with pytest.raises(errors.Conflict, match="is ready"):
            await held.complete()
        await held.report(member_id, "removing", evidence=idle(held))
        await held.report(member_id, "provisioning")
        moved = await side.member(member_id)
        assert (moved.allocation_id, moved.was_ready) == (asked.targets[0].allocation_id, False), side
        await held.report(member_id, "joining", "ready")
        ended = await held.complete()
        assert (ended.status, ended.targets[0].previous_allocation_id) == ("succeeded", before.allocation_id)


async def test_a_replace_that_is_undone_does_not_move_its_member_on(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        await side.replace(member_id)
        held = await side.controller.take()
        await held.report(member_id, "removing", evidence=idle(held))
        failed = await held.fail()
        await side.leave(failed, "compensate")
        undoing = await side.controller.take()
        await undoing.report(member_id, "removing", evidence=idle(undoing))
        with pytest.raises(errors.Conflict, match="not being undone"):
            await undoing.report(member_id, "provisioning")


async def test_an_action_ends_with_its_result(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.invoke({"queue": "night"})
        held = await side.controller.take()
        request = (held.operation.kind, held.operation.action, held.operation.inputs, held.operation.targets)
        assert request == ("action", "flush", {"queue": "night"}, []), side
        ended = await held.complete(result={"flushed": 7})
        assert (ended.status, ended.result) == ("succeeded", {"flushed": 7})


async def test_a_cancelled_action_that_brought_nothing_is_cancelled(sides: tuple[Side, Side]) -> None:
    for side in sides:
        asked = await side.invoke({})
        held = await side.controller.take()
        await side.leave(asked, "cancel")
        assert (await held.complete()).status == "cancelled", side


async def test_a_preview_is_asked_about_members_and_ends_with_what_was_seen(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        asking = asyncio.ensure_future(side.preview_drain(member_id))
        held = await side.controller.take(wait_s=10)
        request = (held.operation.kind, held.operation.preview_of, held.operation.inputs, held.operation.component_key)
        assert request == ("preview", "drain", {"member_ids": [member_id]}, "hand"), side
        with pytest.raises(errors.ValidationFailed):
            await held.complete()
        await held.complete(preview={"answered": True, "source": "script", "gpu_hours_at_stake": 2.5})
        preview = await asking
        assert preview is not None
        assert (preview.answered, preview.gpu_hours_at_stake) == (True, 2.5)


async def test_what_is_seen_between_operations_is_fenced_by_revisions(sides: tuple[Side, Side]) -> None:
    for side in sides:
        first, second = await hands(side)
        await side.operate("drain", second)
        held = await side.controller.take()
        known = {member.member_id: member.revision for member in held.claim.members}
        reported = await observe(
            side,
            conditions=[{"type": "HeadAnswers", "status": "false", "reason": "Timeout"}],
            members=[
                {"member_id": first, "revision": known[first], "status": "degraded", "status_reason": "slow disk"},
                {"member_id": second, "revision": known[second], "status": "degraded"},
                {"member_id": "mem_unknown", "revision": 1, "status": "ready"},
            ],
        )
        assert [member.status for member in reported.members] == ["degraded"]
        assert [refused.code for refused in reported.refused] == ["operation_in_progress", "not_found"], side
        assert (
            reported.instance.status,
            "HeadAnswers" in [condition.type for condition in reported.instance.conditions],
        ) == (
            "degraded",
            True,
        )
        stale = {"member_id": first, "revision": known[first], "status": "ready"}
        gone = {"member_id": first, "revision": reported.members[0].revision, "status": "removed"}
        again = await observe(side, members=[stale, gone])
        assert [refused.code for refused in again.refused] == ["stale", "illegal_move"]
        with pytest.raises(errors.ValidationFailed):
            await observe(side, observed_revision=10_000)
        with pytest.raises(errors.ValidationFailed):
            await observe(side, conditions=[{"type": "LastOperationSucceeded", "status": "true"}])


async def test_a_report_that_is_repeated_changes_nothing(sides: tuple[Side, Side]) -> None:
    for side in sides:
        conditions = [{"type": "HeadAnswers", "status": "true", "reason": "Pong"}]
        first = await observe(side, conditions=conditions)
        assert (await observe(side, conditions=conditions)).instance == first.instance, side


async def test_a_hold_placed_after_the_claim_still_keeps_the_member(sides: tuple[Side, Side]) -> None:
    for side in sides:
        member_id = (await hands(side))[0]
        await side.operate("remove", member_id)
        held = await side.controller.take()
        await side.hold(member_id)
        with pytest.raises(errors.MemberHeld):
            await held.report(member_id, "removing", evidence=idle(held))


async def test_a_claim_includes_the_active_holds(sides: tuple[Side, Side]) -> None:
    for side in sides:
        held_back, other = await hands(side)
        await side.hold(held_back)
        await side.operate("drain", other)
        claim = await side.controller.claim()
        assert [(hold.member_id, hold.kind) for hold in claim.holds] == [(held_back, "no_removal")], side


async def test_the_instance_follows_operations_on_the_whole_of_it(sides: tuple[Side, Side]) -> None:
    for side in sides:
        seen = []
        for verb in ("stop", "start", "decommission"):
            await side.change(verb)
            seen.append((await side.instance()).status)
            assert (await side.controller.carry_out()).status == "succeeded"
            seen.append((await side.instance()).status)
        assert seen == ["stopping", "stopped", "starting", "running", "deleting", "deleted"], side


async def test_a_holder_that_lost_the_lease_is_refused(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(1)
        lost = await side.controller.take(lease_s=5)
        lost.world.clock.forward(6)
        held = await side.controller.take()
        assert held.claim.epoch == lost.claim.epoch + 1
        writes: list[Awaitable[Any]] = [
            lost.heartbeat(),
            lost.step("install"),
            lost.report(lost.member_ids[0], "failed"),
            lost.publish(),
            lost.issue(),
            lost.complete(),
            lost.fail(),
        ]
        for write in writes:
            with pytest.raises(errors.LeaseLost):
                await write
        assert (await held.heartbeat()).lease.epoch == held.claim.epoch, side


async def test_a_delivery_of_a_secret_opens_once_and_the_value_stays_the_same(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(1)
        held = await side.controller.take()
        first, second = await held.issue(), await held.issue()
        value = (await held.open(first.delivery_id)).value
        with pytest.raises(errors.SecretAlreadyDelivered):
            await held.open(first.delivery_id)
        assert (await held.open(second.delivery_id)).value == value != "", side
        with pytest.raises(errors.PurposeUndeclared):
            await held.send(secrets.SECRET_ISSUE, {"purpose": "operator_access", "name": "admin"})


async def test_an_artifact_goes_to_a_machine_of_the_held_operation_only(sides: tuple[Side, Side]) -> None:
    for side in sides:
        artifact = await side.artifact()
        await side.add(1)
        held = await side.controller.take()
        member = next(claimed for claimed in held.claim.members if claimed.member_id == held.member_ids[0])
        body = {"operation_id": held.operation_id, "epoch": held.claim.epoch, "allocation_id": member.allocation_id}
        with pytest.raises(errors.LeaseLost):
            await _place(held, artifact.artifact_id, {**body, "epoch": held.claim.epoch - 1})
        with pytest.raises(errors.NotFound):
            await _place(held, artifact.artifact_id, {**body, "allocation_id": "alloc_none"})
        with pytest.raises(errors.NotFound):
            await _place(held, "art_none", body)
        queued = await _place(held, artifact.artifact_id, {**body, "mode": "0755"})
        assert (queued.state, queued.node_name, queued.mode) == ("queued", member.node_name, "0755"), side
        assert (queued.digest, queued.size_bytes) == (artifact.digest, artifact.size_bytes)
        await side.arrive(queued)
        where = {"artifact_id": artifact.artifact_id, "placement_id": queued.placement_id}
        options: dict[str, Any] = {"token": held.token, "query": {"wait_s": 10}}
        placed = await held.world.call(placements.PLACEMENT_GET, **options, **where)
        there = f"/var/lib/gpuaas/artifacts/{member.allocation_id}/{artifact.digest.replace(':', '/')}"
        assert (placed.state, placed.path, placed.error) == ("placed", there, None), side
        with pytest.raises(errors.LeaseLost):
            await _unplace(held, artifact.artifact_id, {**body, "epoch": held.claim.epoch - 1})
        with pytest.raises(errors.NotFound):
            await _unplace(held, artifact.artifact_id, {**body, "allocation_id": "alloc_none"})
        removing = await _unplace(held, artifact.artifact_id, body)
        assert (removing.state, removing.placement_id) == ("removing", queued.placement_id), side
        await side.arrive(removing)
        removed = await held.world.call(placements.PLACEMENT_GET, **options, **where)
        assert (removed.state, removed.error) == ("removed", None), side


async def _unplace(held: Held, artifact_id: str, body: dict[str, Any]) -> placements.ArtifactPlacement:
    return await held.world.call(placements.PLACEMENT_REMOVE, body, token=held.token, artifact_id=artifact_id)


async def _place(held: Held, artifact_id: str, body: dict[str, Any]) -> placements.ArtifactPlacement:
    return await held.world.call(placements.PLACEMENT_CREATE, body, token=held.token, artifact_id=artifact_id)


async def test_a_claim_for_an_app_that_is_not_registered_is_refused_and_may_be_repeated(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        body = {"app_slug": "tooy", "holder": "test", "claim_id": "c1"}
        with pytest.raises(errors.AppUnknown, match="No app is registered as tooy") as refused:
            await side.controller.world.call(runtime.CLAIM, body, token=side.controller.token)
        assert (refused.value.retryable, refused.value.details) == (True, {"field": "app_slug"}), side


async def test_an_account_neither_claims_nor_reports_work_of_an_app_that_it_does_not_operate(
    sides: tuple[Side, Side],
) -> None:
    for side in sides:
        asked, world, token = await side.foreign(), side.controller.world, side.controller.token
        claim = {"app_slug": "other", "holder": "test", "claim_id": "c1"}
        attempts: list[tuple[Endpoint[Any, Any], dict[str, Any]]] = [
            (runtime.CLAIM, claim),
            (runtime.HEARTBEAT, {"epoch": 0}),
            (runtime.COMPLETE, {"epoch": 0}),
            (runtime.RUNTIME_REPORT, {"holder": "test", "observed_revision": 1}),
        ]
        for endpoint, body in attempts:
            with pytest.raises(errors.PermissionDenied, match="does not operate other") as refused:
                await world.call(
                    endpoint, body, token=token, operation_id=asked.operation_id, instance_id=asked.instance_id
                )
            assert refused.value.details == {"app_slug": "other", "apps": ["toy"]}, side
        seen = (await world.call(CONTROLLER_LIST, token=token)).items
        assert {controller.app_slug for controller in seen} <= {"toy"}, side


async def test_an_illegal_move_and_an_early_complete_have_different_errors(sides: tuple[Side, Side]) -> None:
    for side in sides:
        await side.add(1)
        held = await side.controller.take()
        (member_id,) = held.member_ids
        with pytest.raises(errors.IllegalMove) as refused:
            await held.report(member_id, "ready")
        assert (refused.value.details["from"], refused.value.details["to"]) == ("requested", "ready"), side
        assert refused.value.details["allowed"] == sorted(lifecycles.MEMBER["requested"]), side
        with pytest.raises(errors.OperationUnfinished) as early:
            await held.complete()
        assert early.value.details == {"members": {member_id: "requested"}, "wanted": ["ready"]}, side


async def test_lines_of_the_log_are_stored_once_in_order_and_read_in_pages(sides: tuple[Side, Side]) -> None:
    moment = "2030-01-01T00:00:00Z"
    lines = [{"number": at, "logged_at": moment, "level": "info", "event": f"e{at}"} for at in range(1, 6)]
    read = []
    for side in sides:
        await side.add(1)
        held = await side.controller.take()
        await held.send(runtime.HEARTBEAT, {"log": lines[:3]})
        await held.send(runtime.HEARTBEAT, {"log": lines[2:4]})
        with pytest.raises(errors.LeaseLost):
            await held.send(runtime.HEARTBEAT, {"epoch": held.claim.epoch - 1, "log": lines})
        await held.send(runtime.FAIL, {"code": "x", "message": "y", "failure_class": "repairable", "log": lines})
        where: Any = {"token": side.controller.token, "operation_id": held.operation_id}
        first = await side.controller.world.call(operations.OPERATION_LOG, query={"page_size": 3}, **where)
        more = {"page_size": 3, "page_token": first.next_page_token}
        second = await side.controller.world.call(operations.OPERATION_LOG, query=more, **where)
        assert second.next_page_token is None
        read.append([(line.position, line.event, line.level) for line in (*first.items, *second.items)])
    assert read[0] == read[1] == [(at, f"e{at}", "info") for at in range(1, 6)]


async def test_the_report_of_a_controller_is_stored_once_and_an_older_one_changes_nothing(
    sides: tuple[Side, Side],
) -> None:
    moment = "2030-01-01T00:00:00Z"

    def claim(number: int, code: str, process: str = "p1", started_at: str = moment) -> dict[str, Any]:
        failure = {"task": "look", "code": code, "failed_since": moment, "observed_at": moment}
        line = {"number": number, "logged_at": moment, "level": "info", "event": f"e{number}"}
        report = {"process": process, "started_at": started_at, "number": number, "failures": [failure], "log": [line]}
        return {"app_slug": "toy", "holder": "reporter", "claim_id": f"{process}-{number}", "report": report}

    seen: list[list[tuple[Any, ...]]] = [[] for _ in sides]
    for side, states in zip(sides, seen, strict=True):
        world, token = side.controller.world, side.controller.token
        for body in (
            claim(1, "crashed"),
            claim(2, "unreachable"),
            claim(1, "repeated"),
            claim(1, "later", "p2", "2030-01-01T00:01:00Z"),
            claim(9, "earlier"),
            {"app_slug": "toy", "holder": "reporter", "claim_id": "without"},
        ):
            await world.call(runtime.CLAIM, body, token=token)
            (known,) = [
                item for item in (await world.call(CONTROLLER_LIST, token=token)).items if item.holder == "reporter"
            ]
            assert known.state is not None
            log = await world.call(CONTROLLER_LOG, token=token, query={"controller_id": known.controller_id})
            codes = [failure.code for failure in known.state.failures]
            states.append((codes, known.state.failures_total, [line.event for line in log.items]))
        with pytest.raises(errors.NotFound):
            await world.call(CONTROLLER_LOG, token=token, query={"controller_id": "proj_0/toy/reporter"})
    expected = [
        (["crashed"], 1, ["e1"]),
        (["unreachable"], 1, ["e2"]),
        (["unreachable"], 1, ["e2"]),
        *([(["later"], 1, ["e1"])] * 3),
    ]
    assert seen == [expected, expected]


async def test_the_log_of_a_controller_is_read_in_pages_and_not_without_its_id(sides: tuple[Side, Side]) -> None:
    moment = "2030-01-01T00:00:00Z"
    lines = [{"number": at, "logged_at": moment, "level": "info", "event": f"e{at}"} for at in range(8, 13)]
    report = {"process": "p1", "started_at": moment, "number": 1, "log": lines}
    body = {"app_slug": "toy", "holder": "reporter", "claim_id": "c1", "report": report}
    for side in sides:
        world, token = side.controller.world, side.controller.token
        await world.call(runtime.CLAIM, body, token=token)
        listed = (await world.call(CONTROLLER_LIST, token=token)).items
        (controller_id,) = [item.controller_id for item in listed if item.holder == "reporter"]
        query: dict[str, Any] = {"controller_id": controller_id, "page_size": 2}
        pages = []
        while True:
            page = await world.call(CONTROLLER_LOG, token=token, query=query)
            pages.append([line.event for line in page.items])
            if page.next_page_token is None:
                break
            query["page_token"] = page.next_page_token
        assert pages == [["e8", "e9"], ["e10", "e11"], ["e12"]]
        with pytest.raises(errors.ValidationFailed) as refused:
            await world.call(CONTROLLER_LOG, token=token)
        assert refused.value.details == {"field": "controller_id"}
