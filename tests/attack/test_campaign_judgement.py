"""The judgement of the campaigns finds what it is for, and blames no operation for a fault."""

import dataclasses
import datetime
from typing import Any

import msgspec
import pytest
from gpuaas_contract.events import Event
from gpuaas_contract.operations import Evidence, ExitTaken, Operation, Target

from bench.campaign.faults import Harm
from bench.campaign.instance_acts import returns
from bench.campaign.jobs import Ended, Forced, Return, ended_by_us, is_brought_back, unrecorded
from bench.campaign.watch import drained_times, stale_evidence

NOON = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)
NOON_S = NOON.timestamp()
LOST = Ended("7", "work-1", "NODE_FAIL", frozenset({"gpu-2"}), NOON_S, NOON_S + 30)


def at(seconds: float) -> datetime.datetime:
    return NOON + datetime.timedelta(seconds=seconds)


def test_a_job_that_ended_without_a_fault_is_ours() -> None:
    assert "job 7" in ended_by_us(LOST, set(), [], [])


@pytest.mark.parametrize(
    ("machine", "began_s", "ours"),
    [("gpu-2", 10, False), ("gpu-3", 10, True), ("gpu-2", 60, True), ("gpu-2", -300, True)],
    ids=["its machine", "another machine", "later", "long before"],
)
def test_a_fault_explains_the_end_of_jobs_of_its_machine_and_its_time(machine: str, began_s: float, ours: bool) -> None:
    harm = Harm("power cut", frozenset({machine}), NOON_S + began_s, NOON_S + began_s + 5)
    assert bool(ended_by_us(LOST, set(), [harm], [])) is ours


def test_a_job_that_root_cancelled_is_ours_also_during_a_fault_but_not_after_force() -> None:
    job = Ended("7", "work-1", "CANCELLED by 0", frozenset({"gpu-2"}), NOON_S, NOON_S + 30)
    harm = Harm("freeze", frozenset({"gpu-2"}), NOON_S, NOON_S + 5)
    assert ended_by_us(job, {"7"}, [harm], [])
    assert not ended_by_us(job, set(), [], [Forced("gpu-2", NOON_S + 20)])


def test_a_job_that_no_user_cancelled_is_not_ours_if_slurmctld_could_not_start_it() -> None:
    job = Ended("7", "work-1", "CANCELLED", frozenset({"gpu-2"}), NOON_S, NOON_S + 30)
    cut = Harm("network cut", frozenset({"gpu-1"}), NOON_S - 5, NOON_S + 40)
    frozen = Harm("freeze", frozenset({"gpu-2"}), NOON_S, NOON_S + 40)
    other = Harm("freeze", frozenset({"gpu-3"}), NOON_S, NOON_S + 40)
    for harm in (cut, frozen):
        assert not ended_by_us(job, set(), [harm], [])
        assert ended_by_us(dataclasses.replace(job, state="CANCELLED by 0"), set(), [harm], [])
    assert ended_by_us(job, set(), [other], [])
    assert ended_by_us(job, set(), [], [])


def test_a_job_that_waits_for_a_machine_is_ours_unless_the_machine_was_removed_by_force() -> None:
    waits = Ended("7", "work-1", "NODE_FAIL", frozenset(), NOON_S, NOON_S + 30, named="gpu-2")
    assert not ended_by_us(waits, set(), [], [Forced("gpu-2", NOON_S + 20)])
    assert ended_by_us(waits, set(), [], [Forced("gpu-3", NOON_S + 20)])
    assert ended_by_us(waits, set(), [], [])


def test_a_job_that_slurmctld_may_have_forgotten_in_a_crash_is_not_ours() -> None:
    crash = Harm("kill slurmctld", frozenset(), NOON_S + 10, NOON_S + 20)
    twice = Ended("7", "work-1", "CANCELLED by 0", frozenset({"gpu-2"}), NOON_S + 25, NOON_S + 25, submit_s=NOON_S + 8)
    later = Ended("8", "work-2", "CANCELLED by 0", frozenset({"gpu-2"}), NOON_S + 25, NOON_S + 25, submit_s=NOON_S + 22)
    assert not ended_by_us(twice, set(), [crash], [])
    assert ended_by_us(later, set(), [crash], [])


def test_a_job_that_its_user_cancelled_is_not_ours() -> None:
    job = Ended("7", "work-1", "CANCELLED by 1000", frozenset(), NOON_S, NOON_S + 30)
    assert not ended_by_us(job, {"7"}, [], [])
    assert ended_by_us(job, set(), [], [])


CLOSED = Ended("7", "work-1", "CANCELLED by 0", frozenset({"gpu-2"}), NOON_S, NOON_S + 60, submit_s=NOON_S - 5)
ROLLBACK = Return(state_of_s=NOON_S + 10, began_s=NOON_S + 50, ended_s=NOON_S + 70)


def test_a_rollback_that_shows_a_job_as_cancelled_did_not_end_it_if_the_job_noted_its_end() -> None:
    assert not ended_by_us(dataclasses.replace(CLOSED, is_noted=True), set(), [], [], [ROLLBACK])
    assert ended_by_us(CLOSED, set(), [], [], [ROLLBACK])


def test_a_rollback_that_shows_a_job_as_cancelled_is_not_blamed_for_a_fault_or_a_cancel_before_it() -> None:
    harm = Harm("power cut", frozenset({"gpu-2"}), NOON_S + 20, NOON_S + 30)
    assert not ended_by_us(CLOSED, set(), [harm], [], [ROLLBACK])
    assert not ended_by_us(CLOSED, {"7"}, [], [], [ROLLBACK])
    assert ended_by_us(CLOSED, {"7"}, [harm], [])


def test_a_job_that_ran_before_the_upgrade_must_survive_the_rollback() -> None:
    failed = dataclasses.replace(CLOSED, state="FAILED")
    assert ended_by_us(failed, set(), [], [], [ROLLBACK])
    since = dataclasses.replace(failed, start_s=NOON_S + 20)
    assert not ended_by_us(since, set(), [], [], [ROLLBACK])


@pytest.mark.parametrize(
    ("ended_s", "shown_s", "brought_back"),
    [(20, 55, True), (20, 45, False), (52, 55, False), (None, 55, False)],
    ids=["ended before the return", "shown before the return", "ended during the return", "did not end"],
)
def test_a_job_that_ended_is_no_work_after_a_return_brought_its_record_back(
    ended_s: float | None, shown_s: float, brought_back: bool
) -> None:
    moment = None if ended_s is None else NOON_S + ended_s
    assert is_brought_back(moment, NOON_S + shown_s, [ROLLBACK]) is brought_back


@pytest.mark.parametrize(("submit_s", "ours"), [(5, True), (20, False), (80, True)])
def test_only_jobs_submitted_between_upgrade_and_rollback_may_lose_their_record(submit_s: float, ours: bool) -> None:
    assert bool(unrecorded("7", NOON_S + submit_s, [], [ROLLBACK])) is ours


def test_a_rollback_and_the_undo_of_an_upgrade_return_to_the_state_of_before_the_upgrade() -> None:
    cancelled = ExitTaken(name="cancel", taken_by="", reason="", taken_at=at(20))
    upgrade = msgspec.structs.replace(operation(None), kind="upgrade", ended_at=at(50))
    undone = msgspec.structs.replace(upgrade, exits_taken=[cancelled])
    rollback = msgspec.structs.replace(operation(None), kind="rollback", created_at=at(100), ended_at=at(150))
    assert returns([rollback, upgrade], NOON_S) == [Return(NOON_S, NOON_S + 100, NOON_S + 150)]
    assert returns([undone], NOON_S) == [Return(NOON_S, NOON_S, NOON_S + 50)]


def changed(seconds: float, status: str, was: str, operation_id: str = "op_1") -> Event:
    payload = {"member_id": "mem_1", "node_name": "gpu-2", "component_key": "worker", "status": status, "was": was}
    return Event(
        event_id=f"evt_{seconds}",
        cursor=int(seconds) + 1,
        type="apps.member.changed",
        occurred_at=at(seconds),
        correlation_id="",
        org_id="",
        project_id="",
        app_slug="",
        app_instance_id="",
        payload=payload | {"operation_id": operation_id, "status_reason": ""},
    )


def test_the_time_in_which_a_member_is_drained_is_read_from_its_events() -> None:
    events = [changed(1, "draining", "ready"), changed(5, "drained", "draining"), changed(9, "ready", "drained")]
    assert drained_times(events, NOON_S + 20) == [("gpu-2", "mem_1", NOON_S + 5, NOON_S + 9)]
    assert drained_times(events[:2], NOON_S + 20) == [("gpu-2", "mem_1", NOON_S + 5, NOON_S + 20)]


@pytest.mark.parametrize(("age_s", "state", "stale"), [(3, "idle", False), (121, "idle", True), (3, "busy", True)])
def test_evidence_that_is_old_or_shows_work_does_not_allow_a_removal(age_s: float, state: Any, stale: bool) -> None:
    evidence = Evidence(state=state, source="squeue", observed_at=at(200 - age_s))
    removing = [changed(200, "removing", "drained")]
    assert bool(stale_evidence(operation(evidence), removing)) is stale


def test_a_removal_without_evidence_is_found() -> None:
    assert stale_evidence(operation(None), [changed(200, "removing", "drained")])
    assert not stale_evidence(operation(None), [changed(200, "removing", "failed")])


def operation(evidence: Evidence | None) -> Operation:
    return Operation(
        operation_id="op_1",
        org_id="",
        project_id="",
        instance_id="",
        instance_name="",
        app_slug="slurm",
        kind="remove",
        component_key="worker",
        status="succeeded",
        reason="",
        force=False,
        requested_by="",
        correlation_id="",
        attempts=1,
        epoch=1,
        lease=None,
        deadline_at=at(900),
        error=None,
        revision=1,
        created_at=at(0),
        started_at=at(1),
        ended_at=at(300),
        targets=[Target(member_id="mem_1", outcome="succeeded", evidence=evidence)],
        steps=[],
    )
