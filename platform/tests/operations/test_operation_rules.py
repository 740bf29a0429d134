"""The decisions about operations, facts in and facts out: no store, no clock, no doubles."""

import contextlib
import datetime
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import pytest
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.catalog import Breaker, Manifest, RoleSpec
from gpuaas_contract.instances import BreakerState, Condition, Instance, Member
from gpuaas_contract.operations import (
    ASKING_KINDS,
    DEADLINES_S,
    GOALS,
    UNDONE,
    Evidence,
    ExitName,
    ExitTaken,
    Lease,
    Operation,
    OperationError,
    OperationKind,
    Step,
    Target,
)
from gpuaas_contract.protocol import end as end_rules
from gpuaas_contract.protocol import exits as exit_rules
from gpuaas_contract.protocol import report as report_rules
from gpuaas_contract.protocol import request as request_rules
from gpuaas_contract.protocol import status as status_rules
from gpuaas_contract.protocol import steward as steward_rules
from platform_world import MANIFEST
from scripted_controller import CLUSTERED

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(hours=1)
Made = TypeVar("Made", bound=msgspec.Struct)
ROLE = RoleSpec(component_key="hand", max=10)


def member(member_id: str, status: str = "ready", **more: Any) -> Member:
    facts = {
        "member_id": member_id,
        "component_key": "hand",
        "status": status,
        "allocation_id": f"on-{member_id}",
        "last_operation_id": "op_1",
        "was_ready": True,
        "adapter_detail": {},
        "revision": 1,
        "created_at": NOW,
        "updated_at": NOW,
        **more,
    }
    return _made(Member, facts)


def operation(kind: OperationKind, *targets: Target | str, **more: Any) -> Operation:
    facts = {
        "operation_id": "op_1",
        "kind": kind,
        "status": "running",
        "targets": [Target(member_id=target) if isinstance(target, str) else target for target in targets],
        "steps": [],
        "force": False,
        "attempts": 1,
        "epoch": 1,
        "lease": None,
        "deadline_at": LATER,
        "error": None,
        "revision": 1,
        "created_at": NOW,
        "started_at": NOW,
        "ended_at": None,
        **more,
    }
    return _made(Operation, facts)


def instance(**more: Any) -> Instance:
    facts = {
        "status": "running",
        "placement": {},
        "inputs": {},
        "revision": 1,
        "created_at": NOW,
        "updated_at": NOW,
        **more,
    }
    return _made(Instance, facts)


def _made(kind: type[Made], facts: dict[str, Any]) -> Made:
    """Fields the rules do not look at are left empty."""
    required = [field.name for field in msgspec.structs.fields(kind) if field.required]
    return kind(**{name: "" for name in required if name not in facts} | facts)


def named(*members: Member) -> dict[str, Member]:
    return {listed.member_id: listed for listed in members}


def idle(age_s: float = 0, state: Any = "idle", **more: Any) -> Evidence:
    return Evidence(state=state, source="eye", observed_at=NOW - datetime.timedelta(seconds=age_s), **more)


def _condition(status: Any, **more: Any) -> Condition:
    fields = {"reason": "", "message": "", "observed_revision": 1, "changed_at": NOW, **more}
    return Condition(type="Open", status=status, **fields)


def test_an_action_has_a_deadline_of_its_own_and_kinds_have_the_manifests_or_the_default() -> None:
    manifest = msgspec.convert({**MANIFEST, **CLUSTERED, "deadlines_s": {"drain": 60}}, Manifest)
    assert request_rules.deadline(manifest, "drain", NOW) == NOW + datetime.timedelta(seconds=60)
    assert request_rules.deadline(manifest, "stop", NOW) == NOW + datetime.timedelta(seconds=DEADLINES_S["stop"])


def test_operations_that_touch_other_members_do_not_exclude_each_other() -> None:
    request_rules.check_free([operation("drain", "a")], "remove", ["b"])
    request_rules.check_free([operation("action"), operation("preview")], "stop", [])
    request_rules.check_free([operation("stop", "a")], "action", [])


@pytest.mark.parametrize(
    "other",
    [operation("drain", "a", "b"), operation("upgrade"), operation("action", exclusive=True)],
    ids=["same member", "whole instance", "exclusive action"],
)
def test_an_operation_excludes_one_that_touches_the_same_members(other: Operation) -> None:
    with pytest.raises(errors.OperationInProgress):
        request_rules.check_free([other], "remove", ["b"])


def test_an_exclusive_action_is_refused_while_another_action_is_open() -> None:
    with pytest.raises(errors.OperationInProgress):
        request_rules.check_free([operation("action")], "action", [], exclusive=True)


def test_what_only_reads_neither_waits_for_exclusive_operations_nor_delays_them() -> None:
    readings = [operation("action", reading=True), operation("preview")]
    request_rules.check_free(readings, "action", [], exclusive=True)
    request_rules.check_free(readings, "remove", ["b"], exclusive=True)
    for other in (operation("action", exclusive=True), operation("upgrade")):
        request_rules.check_free([other], "action", [], reading=True)
        request_rules.check_free([other], "preview", [])
    with pytest.raises(errors.OperationInProgress):
        request_rules.check_free([*readings, operation("action")], "action", [], exclusive=True)


def test_the_budget_counts_who_is_down_and_who_is_about_to_be() -> None:
    role = msgspec.structs.replace(ROLE, unavailable_max=2)
    members = [member("a", "drained"), member("b"), member("c"), member("d", component_key="head", status="failed")]
    request_rules.check_budget(role, "drain", members, [], ["b"])
    request_rules.check_budget(role, "drain", members, [operation("drain", "b")], ["a", "b"])
    with pytest.raises(errors.DisruptionBudget) as refused:
        request_rules.check_budget(role, "drain", members, [operation("replace", "b")], ["c"])
    assert refused.value.details == {"unavailable": ["a", "b"], "unavailable_max": 2}
    request_rules.check_budget(role, "resume", members, [], ["a", "b", "c"])
    request_rules.check_budget(ROLE, "remove", members, [], ["a", "b", "c"])


def test_a_role_that_is_past_its_budget_already_may_still_finish_with_those_that_are_down() -> None:
    role = msgspec.structs.replace(ROLE, unavailable_max=0)
    request_rules.check_budget(role, "remove", [member("a", "failed"), member("b")], [], ["a"])
    with pytest.raises(errors.DisruptionBudget):
        request_rules.check_budget(role, "remove", [member("a", "failed"), member("b")], [], ["a", "b"])


def test_a_breaker_is_open_while_enough_failures_lie_inside_its_window() -> None:
    role = msgspec.structs.replace(ROLE, breaker=Breaker(failures=2, window_s=100))
    ages_s = (150, 90, 40)
    failed_at = [NOW - datetime.timedelta(seconds=age_s) for age_s in ages_s]
    state = request_rules.breaker_state(role, failed_at, NOW)
    assert state == BreakerState(open=True, failures=2, closes_at=NOW + datetime.timedelta(seconds=10))
    assert not request_rules.breaker_state(role, failed_at, NOW + datetime.timedelta(seconds=10)).open
    assert request_rules.breaker_state(role, [], NOW) == BreakerState()


def test_a_breaker_with_more_failures_than_it_needs_closes_when_too_few_are_left_inside_its_window() -> None:
    role = msgspec.structs.replace(ROLE, breaker=Breaker(failures=2, window_s=100))
    failed_at = [NOW - datetime.timedelta(seconds=age_s) for age_s in (90, 70, 40, 20)]
    state = request_rules.breaker_state(role, failed_at, NOW)
    assert state == BreakerState(open=True, failures=4, closes_at=NOW + datetime.timedelta(seconds=60))
    assert request_rules.breaker_state(role, failed_at, NOW + datetime.timedelta(seconds=59)).open
    assert not request_rules.breaker_state(role, failed_at, NOW + datetime.timedelta(seconds=60)).open


@pytest.mark.parametrize(
    ("shown", "code"),
    [
        (None, "evidence_missing"),
        (idle(121), "evidence_stale"),
        (idle(-6), "evidence_stale"),
        (idle(state="busy"), "evidence_busy"),
        (idle(running_work=2), "evidence_busy"),
        (idle(state="unknown"), "evidence_unknown"),
        (idle(state="unreachable"), "evidence_unknown"),
        (idle(120), ""),
        (idle(-5, running_work=0), ""),
    ],
)
def test_evidence_counts_when_it_is_fresh_and_readable_and_shows_an_idle_member(
    shown: Evidence | None, code: str
) -> None:
    gap = report_rules.evidence_gap(shown, NOW)
    assert (gap.code if gap else "") == code


@pytest.mark.parametrize(("present", "status"), [("ready", "removing"), ("drained", "removing"), ("failed", "removed")])
def test_evidence_is_asked_for_at_the_step_before_anything_is_destroyed(
    present: str, status: lifecycles.MemberStatus
) -> None:
    with pytest.raises(errors.EvidenceMissing):
        report_rules.check_member_report(operation("remove", "a"), member("a", present), status, None, NOW)


def test_evidence_is_not_asked_for_at_any_other_step() -> None:
    remove = operation("remove", "a")
    report_rules.check_member_report(remove, member("a", "removing"), "removed", None, NOW)
    report_rules.check_member_report(remove, member("a", "removed"), "removed", None, NOW)
    report_rules.check_member_report(remove, member("a", "joining", was_ready=False), "removing", None, NOW)
    forced = msgspec.structs.replace(remove, force=True)
    report_rules.check_member_report(forced, member("a"), "removing", None, NOW)
    report_rules.check_member_report(forced, member("a"), "tombstoned", None, NOW)


def test_a_report_is_about_a_target_that_was_not_skipped_and_a_legal_move() -> None:
    skipped = operation("drain", Target(member_id="a", outcome="skipped", error="too many failed"))
    with pytest.raises(errors.Conflict, match="was skipped: too many failed"):
        report_rules.check_member_report(skipped, member("a"), "draining", None, NOW)
    with pytest.raises(errors.Conflict, match="is not about member b"):
        report_rules.check_member_report(skipped, member("b"), "draining", None, NOW)


def test_an_illegal_move_has_a_code_of_its_own_and_names_the_moves_that_are_allowed() -> None:
    with pytest.raises(errors.IllegalMove, match="from provisioning to ready") as refused:
        report_rules.check_member_report(operation("add", "a"), member("a", "provisioning"), "ready", None, NOW)
    assert refused.value.code == "illegal_move"
    assert refused.value.details == {
        "member_id": "a",
        "from": "provisioning",
        "to": "ready",
        "allowed": sorted(lifecycles.MEMBER["provisioning"]),
    }


@pytest.mark.parametrize(
    "other", [operation("remove", "a"), operation("replace", "a", compensating=True)], ids=["remove", "undone replace"]
)
def test_only_a_replace_that_is_not_undone_moves_a_member_on(other: Operation) -> None:
    with pytest.raises(errors.IllegalMove, match="move a member to another machine only in a `replace`") as refused:
        report_rules.check_member_report(other, member("a", "removing"), "provisioning", None, NOW)
    assert refused.value.details["allowed"] == ["failed", "removed", "tombstoned"]


def test_an_early_complete_has_a_code_of_its_own_and_names_the_open_members() -> None:
    with pytest.raises(errors.OperationUnfinished, match="a is joining") as refused:
        end_rules.ending(operation("add", "a", "b"), named(member("a", "joining"), member("b")))
    assert refused.value.code == "operation_unfinished"
    assert refused.value.details == {"members": {"a": "joining"}, "wanted": ["ready"]}


def test_the_stop_rule_skips_only_members_that_were_not_begun() -> None:
    failed = [Target(member_id=name, outcome="failed") for name in ("a", "b")]
    begun = Step(name="install", state="running", started_at=NOW, member_id="d")
    members = named(
        *(member(name, "failed") for name in "ab"),
        member("c", "provisioning"),
        *(member(name, "requested") for name in "de"),
    )
    add = operation("add", *failed, "c", "d", "e", steps=[begun], stop_after_failures=2)
    assert report_rules.to_skip(add, members) == {"e"}
    assert report_rules.to_skip(msgspec.structs.replace(add, stop_after_failures=3), members) == set()
    assert report_rules.to_skip(msgspec.structs.replace(add, stop_after_failures=0), members) == set()


@pytest.mark.parametrize("kind", sorted(GOALS))
def test_an_operation_whose_targets_are_all_there_succeeds(kind: OperationKind) -> None:
    for status in GOALS[kind]:
        target = Target(member_id="a", allocation_id="on-a" if kind == "replace" else "")
        end = end_rules.ending(operation(kind, target), named(member("a", status)))
        assert (end.status, end.targets[0].outcome, end.error) == ("succeeded", "succeeded", None)


@pytest.mark.parametrize("kind", sorted(UNDONE))
def test_an_operation_that_was_undone_is_cancelled(kind: OperationKind) -> None:
    for status in UNDONE[kind]:
        undoing = operation(kind, "a", compensating=True)
        end = end_rules.ending(undoing, named(member("a", status)))
        assert (end.status, end.targets[0].outcome) == ("cancelled", "cancelled")


def test_a_replaced_member_is_not_done_on_its_old_machine() -> None:
    target = Target(member_id="a", allocation_id="new")
    with pytest.raises(errors.Conflict, match="ready on its new machine"):
        end_rules.ending(operation("replace", target), named(member("a")))
    assert report_rules.outcome(operation("replace", target), target, member("a")) == ("pending", "")
    moved = member("a", allocation_id="new")
    assert report_rules.outcome(operation("replace", target), target, moved) == ("succeeded", "")


def test_some_that_failed_make_the_whole_fail_and_are_counted() -> None:
    add = operation("add", "a", "b", Target(member_id="c", outcome="skipped"))
    end = end_rules.ending(add, named(member("a"), member("b", "failed"), member("c", "removed")))
    assert end.error is not None
    assert end.error.message == "1 of 3 done, 1 failed, 1 not started because of the stop rule."
    assert [target.outcome for target in end.targets] == ["succeeded", "failed", "skipped"]


@pytest.mark.parametrize("version", ["", "1", "2"])
@pytest.mark.parametrize(
    "cancelled",
    [
        operation("restart", "a", status="cancelling"),
        operation("upgrade", "a", status="cancelling", from_version="1", to_version="2"),
    ],
    ids=["restart", "upgrade"],
)
def test_when_done_looks_like_undone_the_holder_of_a_cancelled_operation_reports_which_it_is(
    cancelled: Operation, version: str
) -> None:
    there = named(member("a", observed_version=version))
    assert end_rules.ending(cancelled, there).status == "succeeded"
    assert end_rules.ending(cancelled, there, undone=True).status == "cancelled"


@pytest.mark.parametrize("undone", [True, False])
def test_when_done_and_undone_look_different_the_holders_report_of_it_is_ignored(undone: bool) -> None:
    drain = operation("drain", "a", status="cancelling")
    replaced = operation("replace", Target(member_id="a", allocation_id="new"), status="cancelling")
    assert end_rules.ending(drain, named(member("a", "drained")), undone=undone).status == "succeeded"
    assert end_rules.ending(drain, named(member("a")), undone=undone).status == "cancelled"
    there = named(member("a", allocation_id="new"))
    assert end_rules.ending(replaced, there, undone=undone).status == "succeeded"


def test_an_operation_that_was_not_cancelled_cannot_end_as_undone() -> None:
    upgrade = operation("upgrade", "a", to_version="2")
    assert end_rules.ending(upgrade, named(member("a")), undone=True).status == "succeeded"


def test_a_cancel_that_came_too_late_is_marked_and_no_other_exit_is() -> None:
    taken = [_exit("cancel"), _exit("retry"), _exit("cancel")]
    cancelling = operation("upgrade", "a", status="cancelling", exits_taken=taken)
    marked = end_rules.with_late_cancel(cancelling, "succeeded")
    assert [exit_taken.too_late for exit_taken in marked.exits_taken] == [False, False, True]
    assert end_rules.with_late_cancel(cancelling, "cancelled") == cancelling
    running = operation("upgrade", "a", status="running", exits_taken=taken[:2])
    assert end_rules.with_late_cancel(running, "succeeded") == running


@pytest.mark.parametrize(
    ("baseline", "active", "members", "conditions", "expected"),
    [
        ("up", None, {"ready": 3}, [_condition("true")], "running"),
        ("up", None, {"ready": 2, "draining": 1, "joining": 1}, [], "running"),
        ("up", None, {"ready": 2, "failed": 1}, [], "degraded"),
        ("up", None, {"ready": 2}, [_condition("unknown")], "degraded"),
        ("up", "upgrade", {"failed": 1}, [], "upgrading"),
        ("stopped", None, {"drained": 3}, [_condition("false")], "stopped"),
        ("failed", None, {"ready": 3}, [], "failed"),
        ("deleted", None, {}, [], "deleted"),
        ("new", "deploy", {}, [], "deploying"),
    ],
)
def test_the_status_of_an_instance_follows_one_rule(
    baseline: str, active: OperationKind | None, members: dict[str, int], conditions: list[Condition], expected: str
) -> None:
    assert status_rules.instance_status(instance(baseline=baseline), active, members, conditions) == expected


def test_a_degraded_instance_reports_the_reason() -> None:
    degraded = instance(conditions=[_condition("false", message="the disk is full"), _condition("true")])
    reason = status_rules.status_reason(degraded, "degraded", {"failed": 2, "degraded": 1, "ready": 4})
    assert reason == "Open: the disk is full; 1 member is degraded; 2 members are failed"
    assert status_rules.status_reason(degraded, "running", {"failed": 2}) == ""


@pytest.mark.parametrize(
    ("present", "kind", "status", "expected"),
    [
        ("new", "deploy", "succeeded", "up"),
        ("new", "deploy", "failed", "failed"),
        ("new", "deploy", "cancelled", "failed"),
        ("up", "stop", "succeeded", "stopped"),
        ("up", "stop", "cancelled", "up"),
        ("stopped", "start", "cancelled", "stopped"),
        ("up", "upgrade", "failed", "up"),
        ("up", "restart", "failed", "failed"),
        ("failed", "start", "succeeded", "up"),
        ("up", "decommission", "cancelled", "up"),
        ("up", "decommission", "failed", "failed"),
        ("stopped", "decommission", "succeeded", "deleted"),
    ],
)
def test_the_end_of_an_operation_decides_the_baseline_of_the_instance(
    present: Any, kind: OperationKind, status: Any, expected: str
) -> None:
    assert status_rules.baseline_after(present, kind, status) == expected


def test_a_condition_that_is_only_repeated_keeps_its_time_of_change() -> None:
    before = _condition("true", reason="Serving")
    later = msgspec.structs.replace(before, changed_at=LATER, observed_revision=9)
    assert status_rules.merged([before], [later]) == [before]
    reworded = msgspec.structs.replace(later, reason="Busy")
    assert status_rules.merged([before], [reworded])[0].changed_at == NOW
    turned = msgspec.structs.replace(later, status="false")
    assert status_rules.merged([before], [turned]) == [turned]


def test_the_exits_of_an_operation_follow_from_its_state() -> None:
    there, gone = named(member("a")), named(member("a", "removed"))
    failed = {"status": "failed", "error": _error()}
    assert exit_rules.legal(operation("add", "a", status="accepted", attempts=0), there) == ["cancel", "force_complete"]
    assert exit_rules.legal(operation("decommission", "a"), there) == ["force_complete"]
    assert exit_rules.legal(operation("add", "a", status="cancelling"), there) == ["force_complete"]
    assert exit_rules.legal(operation("add", "a", compensating=True), there) == ["force_complete"]
    everything = {"retry", "compensate", "tombstone", "force_complete"}
    assert set(exit_rules.legal(operation("add", "a", **failed), there)) == everything
    assert set(exit_rules.legal(operation("decommission", "a", **failed), there)) == everything - {"compensate"}
    assert exit_rules.legal(operation("add", "a", **failed), gone) == []
    assert exit_rules.legal(operation("add", "a", **failed), named(member("a", last_operation_id="op_2"))) == []
    assert exit_rules.legal(operation("action", **failed), {}) == ["retry"]


def test_a_repair_can_be_stopped_although_the_controller_cannot_undo_it() -> None:
    running, there = operation("repair", "a", can_undo=False), named(member("a"))
    assert exit_rules.legal(running, there) == ["cancel", "force_complete"]
    assert "nothing is undone" in exit_rules.meaning(running, "cancel")
    assert exit_rules.meaning(operation("drain", "a"), "cancel") == exit_rules.MEANINGS["cancel"]
    failed = operation("repair", "a", can_undo=False, status="failed", error=_error())
    assert "compensate" not in exit_rules.legal(failed, there)


@pytest.mark.parametrize(
    ("changes", "after_s", "is_refused"),
    [
        ({}, 0, True),
        ({}, 3599, True),
        ({}, 3600, False),
        ({"by_steward": False}, 0, False),
        ({"status": "succeeded"}, 0, False),
        ({"kind": "drain"}, 0, False),
    ],
)
def test_a_steward_waits_an_hour_after_people_cancelled_what_it_requested(
    changes: dict[str, Any], after_s: int, is_refused: bool
) -> None:
    taken = ExitTaken(name="cancel", taken_by="user_1", reason="not now", taken_at=NOW)
    ended = operation("repair", "a", status="cancelled", by_steward=True, exits_taken=[taken])
    last, later = {"a": msgspec.structs.replace(ended, **changes)}, NOW + datetime.timedelta(seconds=after_s)
    expected = pytest.raises(errors.StewardBudgetUsed) if is_refused else contextlib.nullcontext()
    with expected:
        steward_rules.check_cancelled("repair", last, later)


def test_a_refused_cancel_states_why_and_what_to_do() -> None:
    with pytest.raises(errors.ExitUnavailable, match="the app's controller cannot undo a rollback") as refused:
        exit_rules.check(operation("rollback", "a", can_undo=False), named(member("a")), "cancel")
    assert "gpuaas op force-complete op_1" in refused.value.fix
    ended = operation("drain", "a", status="succeeded")
    with pytest.raises(errors.ExitUnavailable, match="drain is succeeded; cancel is not possible now"):
        exit_rules.check(ended, named(member("a")), "cancel")


def test_an_exit_that_is_not_possible_names_those_that_are_or_that_none_is_needed() -> None:
    failed = operation("drain", "a", status="failed")
    latest = msgspec.structs.replace(member("a"), last_operation_id=failed.operation_id)
    with pytest.raises(errors.ExitUnavailable) as refused:
        exit_rules.check(failed, named(latest), "cancel")
    assert f"gpuaas op retry {failed.operation_id} --reason TEXT" in refused.value.fix
    passed_over = msgspec.structs.replace(member("a"), last_operation_id="op_later")
    with pytest.raises(errors.ExitUnavailable) as refused:
        exit_rules.check(failed, named(passed_over), "retry")
    assert "It needs no exit" in refused.value.fix


def test_the_exits_of_a_refusal_state_that_it_was_refused() -> None:
    error = OperationError(code="refused", failure_class="refused", message="jobs run", retryable=False)
    refused = operation("stop", "a", status="failed", error=error)
    assert "nothing needs to be done" in exit_rules.meaning(refused, "retry")
    assert "although it was refused" in exit_rules.meaning(refused, "force_complete")
    assert exit_rules.meaning(operation("stop", "a", status="failed"), "retry") == exit_rules.MEANINGS["retry"]


@pytest.mark.parametrize(("kind", "exits"), [("action", []), ("preview", []), ("decommission", ["retry"])])
def test_a_refused_action_is_run_again_and_not_retried(kind: OperationKind, exits: list[str]) -> None:
    refused = {"status": "failed", "error": msgspec.structs.replace(_error(), failure_class="refused")}
    targets = () if kind in ASKING_KINDS else ("a",)
    legal = exit_rules.legal(operation(kind, *targets, **refused), named(member("a")) if targets else {})
    assert [name for name in legal if name == "retry"] == exits


def test_a_repair_supersedes_an_operation_on_members_but_no_replace_and_none_on_the_whole_instance() -> None:
    failed, repaired = {"status": "failed", "error": _error()}, named(member("a", last_operation_id="op_2"))
    assert exit_rules.legal(operation("add", "a", **failed), repaired, superseded=False) == []
    for kind in ("upgrade", "replace"):
        assert "retry" in exit_rules.legal(operation(kind, "a", **failed), repaired, superseded=False)
        assert exit_rules.legal(operation(kind, "a", **failed), repaired, superseded=True) == []


@pytest.mark.parametrize("status", ["succeeded", "cancelled"])
def test_an_operation_that_succeeded_or_was_cancelled_has_no_exit(status: str) -> None:
    assert exit_rules.legal(operation("add", "a", status=status), named(member("a"))) == []


def test_a_retry_takes_up_what_is_not_done_and_an_undoing_all_that_is_there() -> None:
    outcomes = {"a": "succeeded", "b": "failed", "c": "skipped", "d": "failed"}
    targets = [Target(member_id=name, outcome=outcome, error="x") for name, outcome in outcomes.items()]  # type: ignore[arg-type]
    members = named(member("a"), member("b", "failed"), member("c"), member("d", "tombstoned"))
    failed = operation("drain", *targets, status="failed", error=_error(), ended_at=NOW)
    again = exit_rules.reopened(failed, members, LATER, compensating=False)
    assert (again.status, again.error, again.ended_at, again.deadline_at) == ("accepted", None, None, LATER)
    assert [target.outcome for target in again.targets] == ["succeeded", "pending", "pending", "cancelled"]
    undoing = exit_rules.reopened(failed, members, LATER, compensating=True)
    assert [target.outcome for target in undoing.targets] == ["pending", "pending", "pending", "failed"]


@pytest.mark.parametrize("kind", sorted(GOALS))
def test_a_forced_end_moves_members_only_where_the_lifecycle_lets_them_and_never_to_ready(kind: OperationKind) -> None:
    for compensating in (False, True) if kind in UNDONE else (False,):
        forced = operation(kind, "a", compensating=compensating)
        for present in lifecycles.MEMBER:
            status = exit_rules.forced_status(forced, forced.targets[0], member("a", present))
            if status is not None:
                assert lifecycles.may_move(lifecycles.MEMBER, present, status), (present, status)
                assert status not in ("ready", "removed")


@pytest.mark.parametrize(
    ("before", "status"),
    [("drained", "drained"), ("draining", "drained"), ("failed", "degraded"), ("ready", "degraded")],
)
def test_a_forced_end_of_a_repair_drains_only_a_member_that_was_drained_before(before: Any, status: str) -> None:
    target = Target(member_id="a", status_before=before)
    forced = operation("repair", target)
    assert exit_rules.forced_status(forced, target, member("a", "degraded")) == status


@dataclass(frozen=True)
class Account:
    actor_id: str
    apps: frozenset[str]


HOLDER = Account("sa_1", frozenset({operation("add").app_slug}))


def _held() -> Operation:
    lease = Lease(holder="h", claim_id="c", epoch=3, expires_at=LATER, actor_id="sa_1")
    return operation("add", epoch=3, operator_service_account_id="sa_1", lease=lease)


@pytest.mark.parametrize(("epoch", "change"), [(2, {}), (3, {"lease": None}), (3, {"status": "failed"})])
def test_a_report_counts_only_under_the_newest_epoch_of_an_open_operation(epoch: int, change: dict[str, Any]) -> None:
    request_rules.check_holder(_held(), 3, HOLDER)
    with pytest.raises(errors.LeaseLost):
        request_rules.check_holder(msgspec.structs.replace(_held(), **change), epoch, HOLDER)


@pytest.mark.parametrize("operator", ["sa_1", ""])
def test_a_report_counts_only_from_the_account_that_claimed(operator: str) -> None:
    held = msgspec.structs.replace(_held(), operator_service_account_id=operator)
    request_rules.check_holder(held, 3, HOLDER)
    with pytest.raises(errors.PermissionDenied):
        request_rules.check_holder(held, 3, Account("sa_2", HOLDER.apps))


def test_a_report_counts_only_while_the_account_operates_the_app() -> None:
    with pytest.raises(errors.PermissionDenied, match="does not operate"):
        request_rules.check_holder(_held(), 3, Account(HOLDER.actor_id, frozenset({"another"})))


def _error() -> OperationError:
    return OperationError(code="x", message="x", failure_class="lost", retryable=False)


def _exit(name: ExitName) -> ExitTaken:
    return ExitTaken(name=name, taken_by="user_1", reason="because", taken_at=NOW)
