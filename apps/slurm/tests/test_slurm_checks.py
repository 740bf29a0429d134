"""What a look at a cluster means. Facts in, findings and verdicts out."""

import datetime
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm import checks, old_programs, plan
from gpuaas_app_slurm.checks import Finding
from gpuaas_app_slurm.workload import backup, observed, programs, reporter_program, watch_program
from gpuaas_app_slurm.workload.observed import (
    BlockedJobs,
    Changed,
    DirectLook,
    Observed,
    ObservedNode,
    Report,
    Reported,
)
from gpuaas_app_slurm.workload.people import Person
from gpuaas_sdk.checks import Check

UP, DOWN = Check(True), Check(False, "slurmctld does not answer: Slurmctld(primary) at gpu-1 is DOWN")
MACHINE = checks.Machine("slurm", "gpu-2", "10.0.0.2")
SOUND = Report(units={"slurmd": ("active", 0)}, key="aa", package="24.11.5-4")
HEAD = Reported(report=Report(units={"slurmdbd": ("active", 0), "mariadb": ("active", 0)}, key="aa"), is_stale=False)


class AMember(msgspec.Struct, frozen=True):
    member_id: str
    component_key: str
    status: str = "ready"
    node_name: str = "gpu-2"
    address: str = "10.0.0.2"
    adapter_detail: dict[str, Any] = msgspec.field(default_factory=lambda: {"node_name": "gpu-2"})
    updated_at: datetime.datetime = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


CONTROLLER = AMember("mem_1", "controller", node_name="gpu-1", adapter_detail={})
WORKER = AMember("mem_2", "worker")


def node(**changes: Any) -> ObservedNode:
    fields: dict[str, Any] = {"name": "gpu-2", "flags": frozenset({"IDLE"}), "version": "24.11.5"}
    return ObservedNode(**(fields | {"report": SOUND, "is_stale": False} | changes))


def cluster(*nodes: ObservedNode, **changes: Any) -> Observed:
    fields: dict[str, Any] = {"scheduler": UP, "accounting": UP, "own": HEAD, "version": "24.11.5"}
    return Observed(nodes={each.name: each for each in nodes}, **(fields | changes))


def found(seen: ObservedNode | None, direct: DirectLook | None = None) -> list[Finding]:
    return checks.of_worker(MACHINE, seen, direct, HEAD, "24.11.5")


def test_a_node_that_an_unfinished_upgrade_left_behind_names_the_upgrade() -> None:
    upgraded = msgspec.structs.replace(SOUND, upgrade={"operation_id": "op_7", "package_version": "23.11.1-2"})

    def of_worker(seen: ObservedNode) -> list[Finding]:
        return checks.of_worker(MACHINE, seen, None, Reported(report=upgraded), "24.11.5")

    (behind,) = of_worker(node(version="23.11.1"))
    assert (behind.code, behind.fix.endswith(": gpuaas op retry op_7 --reason TEXT")) == ("VersionDrift", True)
    (installed,) = of_worker(node(version="23.11.1", report=msgspec.structs.replace(SOUND, package="24.11.5-4")))
    assert "op retry op_7" in installed.fix
    for version in ("23.02.7", "23.11.10", "23.1"):
        (other,) = of_worker(node(version=version))
        assert "systemctl restart slurmd" in other.fix, "this node was not left behind by the upgrade"


def of_controller(version: str, **report: Any) -> list[Finding]:
    own = Reported(report=Report(**({"package": "24.11.5-4"} | report)), is_stale=False)
    return checks.of_controller(MACHINE, cluster(own=own, version=version))


def test_a_slurmctld_that_was_not_restarted_after_its_package_changed_is_found() -> None:
    (drift,) = of_controller("24.11.1")
    assert (drift.code, drift.status, drift.repairs) == ("VersionDrift", "degraded", False)
    assert drift.reason == "package 24.11.5-4 is installed on gpu-2, but slurmctld still runs 24.11.1"
    assert drift.fix == "gpuaas ssh gpu-2 --root -- sudo systemctl restart slurmctld"
    assert of_controller("24.11.5") == []
    assert of_controller("") == [], "slurmctld does not answer"
    assert of_controller("24.11.5", package="") == []


def test_a_slurmctld_that_an_unfinished_upgrade_left_behind_names_the_upgrade() -> None:
    upgrade = {"operation_id": "op_7", "package_version": "23.11.1-2"}
    (behind,) = of_controller("23.11.1", upgrade=upgrade)
    assert behind.fix.endswith("finish it: gpuaas op retry op_7 --reason TEXT")
    assert of_controller("24.11.5", upgrade=upgrade) == [], "the upgrade reached slurmctld"
    (later,) = of_controller("24.11.1", upgrade=upgrade)
    assert later.fix.endswith("systemctl restart slurmctld"), "someone changed the package after the upgrade"


@pytest.mark.parametrize("upgrade", [{}, {"operation_id": "op_7", "package_version": "23.11.1-2"}])
def test_the_fix_of_a_slurmctld_whose_package_is_older_is_no_restart(upgrade: dict[str, str]) -> None:
    (drift,) = of_controller("24.11.5", package="23.11.1-2", upgrade=upgrade)
    assert drift.fix.startswith("do not restart slurmctld")
    assert drift.fix.endswith(": gpuaas rollback slurm")


def test_a_daemon_of_another_patch_release_with_the_same_first_digits_is_found() -> None:
    packaged = msgspec.structs.replace(SOUND, package="24.11.50-4")
    (drift,) = found(node(version="24.11.5", report=packaged))
    assert (drift.code, "still runs 24.11.5" in drift.reason) == ("VersionDrift", True)


def test_the_reporter_shows_the_last_upgrade_until_it_was_returned_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reporter_program, "UPGRADE", str(tmp_path))
    (tmp_path / "before.json").write_text('{"operation_id": "op_7", "package_version": "23.11.1-2", "running": []}')
    assert reporter_program.upgrade() == {}, "the backup is not complete, so nothing has changed"
    (tmp_path / "done").touch()
    assert reporter_program.upgrade() == {"operation_id": "op_7", "package_version": "23.11.1-2"}
    (tmp_path / "returned").write_text("op_7")
    assert reporter_program.upgrade() == {}


def test_the_reporter_reads_the_backup_that_an_upgrade_writes() -> None:
    assert reporter_program.UPGRADE == backup.FOLDER


def test_a_sound_worker_has_no_finding() -> None:
    assert found(node()) == []


@pytest.mark.parametrize(
    ("seen", "direct", "code", "status", "repairs"),
    [
        (node(slurmd_port="silent"), DirectLook(unreachable="timed out"), "MachineSilent", "failed", False),
        (node(is_stale=True), DirectLook(unreachable="timed out"), "MachineSilent", "failed", False),
        (node(slurmd_port="refused"), DirectLook(units={"slurmd": "inactive"}), "SlurmdDown", "failed", True),
        (node(slurmd_port="refused"), DirectLook(units={"slurmd": "masked"}), "SlurmdMasked", "failed", False),
        (
            node(slurmd_port="refused"),
            DirectLook(report=Report(units={"slurmd": ("restarting", 4)}, key="aa")),
            "SlurmdCrashLoop",
            "failed",
            True,
        ),
        (node(is_stale=True), DirectLook(report=Report(key="bb"), scheduler=DOWN), "KeyMismatch", "failed", True),
        (None, DirectLook(report=SOUND), "NodeDeleted", "failed", True),
        (
            node(flags=frozenset({"DOWN"}), reason="Not responding", reason_by="slurm"),
            DirectLook(report=SOUND),
            "NodeDown",
            "failed",
            True,
        ),
        (
            node(flags=frozenset({"DOWN"}), reason="bad fan : Not responding", reason_by="slurm"),
            DirectLook(report=SOUND),
            "NodeDown",
            "failed",
            True,
        ),
        (
            node(flags=frozenset({"DOWN"}), reason="bad fan", reason_by="ada"),
            DirectLook(report=SOUND),
            "ExternallyDown",
            "degraded",
            False,
        ),
        (
            node(flags=frozenset({"IDLE", "DRAIN"}), reason="bad fan", reason_by="ada"),
            None,
            "ExternallyDrained",
            "degraded",
            False,
        ),
        (node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_1: x"), None, "DrainLeft", "degraded", False),
        (
            node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas-check: / is full", reason_by="root"),
            None,
            "HealthCheckFailed",
            "degraded",
            False,
        ),
        (node(report=msgspec.structs.replace(SOUND, full={"/": 1})), None, "DiskFull", "degraded", False),
        (node(clock_off_s=-600), None, "ClockOff", "degraded", False),
        (
            node(is_stale=True),
            DirectLook(report=msgspec.structs.replace(SOUND, full={"/": 1}), scheduler=DOWN),
            "DiskFull",
            "degraded",
            False,
        ),
        (node(is_stale=True), DirectLook(report=SOUND, scheduler=DOWN), "ClusterUnreachable", "degraded", True),
        (
            node(report=msgspec.structs.replace(SOUND, drift=("/etc/slurm/gres.conf",))),
            None,
            "FilesChanged",
            "degraded",
            False,
        ),
        (node(version="23.11.1"), None, "VersionDrift", "degraded", False),
        (
            node(is_stale=True),
            DirectLook(report=SOUND, units={"slurmd": "active", "gpuaas-slurm-health": "failed"}),
            "ReporterDown",
            "degraded",
            True,
        ),
    ],
)
def test_each_fault_of_a_worker_is_found_with_a_reason_and_a_fix(
    seen: ObservedNode | None, direct: DirectLook | None, code: str, status: str, repairs: bool
) -> None:
    worst = found(seen, direct)[0]
    assert (worst.code, worst.status, worst.repairs) == (code, status, repairs)
    assert "gpu-2" in worst.reason
    assert "gpuaas " in worst.fix.rsplit(": ", 1)[-1], "the fix ends with a command"


@pytest.mark.parametrize("flag", ["DOWN", "FAIL"])
@pytest.mark.parametrize(
    ("reason", "by"), [("bad fan", "root"), ("bad fan", ""), ("bad fan : reboot issued : reboot complete", "slurm")]
)
def test_a_node_that_a_person_set_down_is_shown_with_the_reason_and_never_repaired(
    flag: str, reason: str, by: str
) -> None:
    down = node(flags=frozenset({flag}), reason=reason, reason_by=by)
    (finding,) = found(down, DirectLook(report=SOUND))
    assert (finding.code, finding.status, finding.repairs) == ("ExternallyDown", "degraded", False)
    assert finding.reason == f"{by.replace('slurm', '') or 'someone'} set node gpu-2 down: {reason}"
    assert finding.fix.endswith(": gpuaas ssh gpu-2 --root -- sudo scontrol update nodename=gpu-2 state=resume")


def test_no_other_fault_of_a_node_that_a_person_set_down_is_repaired_because_that_would_lift_it() -> None:
    down = node(flags=frozenset({"DOWN"}), reason="bad fan", reason_by="root", slurmd_port="refused", is_stale=True)
    findings = found(down, DirectLook(report=Report(key="bb"), units={"slurmd": "inactive"}))
    codes = ["ExternallyDown", "KeyMismatch", "SlurmdDown", "ReporterDown"]
    assert [(each.code, each.repairs) for each in findings] == [(code, False) for code in codes]


@pytest.mark.parametrize("reason", ["", "gpuaas:op_1: machine given up", "gpuaas: removed by force", "gpuaas-check: x"])
def test_a_node_that_the_app_itself_set_down_is_repaired(reason: str) -> None:
    down = node(flags=frozenset({"DOWN"}), reason=reason, reason_by="root")
    assert [(each.code, each.repairs) for each in found(down, DirectLook(report=SOUND))] == [("NodeDown", True)]


def test_a_report_that_is_only_late_is_no_fault() -> None:
    direct = DirectLook(report=SOUND, units={"slurmd": "active", "gpuaas-slurm-health": "active"})
    assert found(node(is_stale=True), direct) == []


def test_a_machine_that_only_the_controller_of_the_app_cannot_reach_keeps_its_own_findings() -> None:
    assert found(node(flags=frozenset({"DOWN"})), DirectLook(unreachable="no route"))[0].code == "NodeDown"


@pytest.mark.parametrize(
    ("changes", "code", "status"),
    [
        ({"scheduler": DOWN}, "SchedulerDown", "failed"),
        ({"accounting": DOWN}, "AccountingDown", "degraded"),
        (
            {"accounting": DOWN, "own": Reported(report=Report(units={"mariadb": ("failed", 0)}))},
            "DatabaseDown",
            "degraded",
        ),
    ],
)
def test_faults_of_the_controller_machine_are_distinguished(changes: dict[str, Any], code: str, status: str) -> None:
    worst = checks.of_controller(MACHINE, cluster(**changes))[0]
    assert (worst.code, worst.status, worst.repairs) == (code, status, True)


def test_a_dead_reporter_of_the_controller_machine_is_found_and_repaired() -> None:
    (dead,) = checks.of_controller(MACHINE, cluster(own=Reported()))
    assert (dead.code, dead.status, dead.repairs) == ("ReporterDown", "degraded", True)
    assert dead.fix == "gpuaas member repair slurm gpu-2"


def test_partitions_that_someone_changed_in_slurmctld_are_shown_and_left_alone() -> None:
    closed = tuple(Changed(f"p{number}", "State", "DOWN", "UP") for number in range(7))
    (finding,) = checks.of_controller(MACHINE, cluster(partitions=closed))
    assert (finding.code, finding.status, finding.repairs) == ("ExternallyChanged", "degraded", False)
    assert "State of p0 is DOWN, not UP; State of p1" in finding.reason
    assert finding.reason.endswith("State of p4 is DOWN, not UP; and 2 more")
    assert finding.fix.endswith(": gpuaas ssh gpu-2 --root -- sudo scontrol reconfigure")
    down = checks.of_controller(MACHINE, cluster(partitions=closed, scheduler=DOWN))
    assert [each.code for each in down] == ["SchedulerDown"]


def test_an_unfinished_move_is_remembered_while_the_machine_does_not_report() -> None:
    move = {"node_name": "gpu-5", "operation_id": "op_1"}

    def judged(controller: AMember, **changes: Any) -> plan.Verdict:
        seen = cluster(**({"own": Reported(), "scheduler": DOWN} | changes))
        return plan.decide("slurm", [controller], seen, {}).verdicts[0]

    shown = judged(CONTROLLER, move=move)
    assert shown.reason.startswith("MoveLeft: ")
    known = msgspec.structs.replace(CONTROLLER, adapter_detail=shown.detail)
    silent = judged(known)
    assert (silent.reason, silent.repair, silent.detail) == (shown.reason, "", shown.detail)
    ended = judged(known, move={}, scheduler=UP, own=HEAD)
    assert (ended.status, "unfinished_move" in (ended.detail or {})) == ("ready", False)


def test_a_few_machines_at_a_time_get_the_health_programs_of_this_release() -> None:
    workers = [
        AMember(f"wrk_{number}", "worker", node_name=f"gpu-{number}", adapter_detail={"node_name": f"gpu-{number}"})
        for number in range(1, 9)
    ]
    reports = {"gpu-7": Report(key="aa", programs=programs.digest()), "gpu-8": Report(key="aa")}
    old = Report(key="aa", programs="0ld")
    nodes = [node(name=each.node_name, report=reports.get(each.node_name, old)) for each in workers]
    own = Reported(report=old, is_stale=False)
    decided = plan.decide("slurm", [CONTROLLER, *workers], cluster(*nodes, own=own), {}).verdicts
    assert {verdict.status for verdict in decided} == {"ready"}, "they work, so nothing is degraded"
    repaired = [verdict.member_id for verdict in decided if verdict.repair]
    assert len(repaired) == old_programs.AT_ONCE
    assert not {CONTROLLER.member_id, "wrk_1"} <= set(repaired), "both are on gpu-1"
    others = [each for each in workers if each.node_name in ("gpu-7", "gpu-8")]
    alone = plan.decide("slurm", [CONTROLLER, *others], cluster(*nodes, own=HEAD), {}).verdicts
    assert not any(verdict.repair for verdict in alone), "the programs of this release, and unknown ones"


def test_a_member_that_is_drained_keeps_its_old_programs_until_it_returns() -> None:
    drained = node(
        flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_1: fan", report=Report(key="aa", programs="0ld")
    )
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="drained"), cluster(drained))
    assert (verdict.status, verdict.repair) == ("drained", "")


def verdicts(member: AMember, seen: Observed, **direct: DirectLook) -> tuple[plan.Verdict, ...]:
    return plan.decide("slurm", [CONTROLLER, member], seen, {"mem_2": direct["at"]} if direct else {}).verdicts[1:]


def test_a_member_returns_to_ready_when_its_machine_is_sound_again() -> None:
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="failed"), cluster(node()))
    assert (verdict.status, verdict.reason, verdict.repair) == ("ready", "", "")


def test_a_member_that_never_joined_is_left_to_its_operation() -> None:
    assert verdicts(msgspec.structs.replace(WORKER, status="failed", adapter_detail={}), cluster(node())) == ()


@pytest.mark.parametrize("member", [WORKER, CONTROLLER], ids=["worker", "controller"])
def test_a_member_whose_removal_failed_is_left_to_its_operation(member: AMember) -> None:
    half = msgspec.structs.replace(member, status="failed", adapter_detail={"node_name": "gpu-2", "removal": "op_1"})
    assert not plan.is_judged(half)
    assert plan.is_judged(msgspec.structs.replace(half, adapter_detail={"node_name": "gpu-2"}))


def test_a_member_that_was_declared_ready_before_it_joined_is_to_be_removed_and_not_repaired() -> None:
    member = msgspec.structs.replace(WORKER, status="degraded", adapter_detail={})
    [verdict] = verdicts(member, cluster(), at=DirectLook(report=SOUND))
    assert (verdict.status, verdict.repair) == ("degraded", "")
    assert "NeverJoined" in verdict.reason
    assert verdict.fix.endswith(": gpuaas member remove slurm gpu-2")


def test_a_drained_member_stays_drained_while_its_node_is() -> None:
    drained = node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_1: repair")
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="drained"), cluster(drained))
    assert (verdict.status, verdict.reason) == ("drained", "")


@pytest.mark.parametrize("status", ["failed", "degraded"])
def test_a_drained_member_whose_machine_failed_is_drained_again_when_it_returns(status: str) -> None:
    back = msgspec.structs.replace(WORKER, status=status, adapter_detail={"node_name": "gpu-2", "drained_by": "op_1"})
    [verdict] = verdicts(back, cluster(node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_1: new disk")))
    assert (verdict.status, verdict.reason) == ("drained", "")
    [other] = verdicts(back, cluster(node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_2: left")))
    assert (other.status, "DrainLeft" in other.reason) == ("degraded", True)


def test_a_drain_with_running_work_is_not_shown_as_drained() -> None:
    draining = node(flags=frozenset({"MIXED", "DRAIN"}), reason="gpuaas:op_1: repair")
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="drained"), cluster(draining))
    assert verdict.status == "draining"


def test_a_member_whose_drain_was_lifted_in_slurm_is_ready() -> None:
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="drained"), cluster(node()))
    assert verdict.status == "ready"


def test_a_worker_that_seems_unwell_is_not_judged_before_its_machine_was_asked() -> None:
    seen = cluster(node(slurmd_port="silent"))
    assert plan.to_look_at([CONTROLLER, WORKER], seen) == (WORKER,)
    assert verdicts(WORKER, seen) == ()
    assert verdicts(WORKER, seen, at=DirectLook(unreachable="timed out"))[0].status == "failed"


def test_a_look_asks_a_bounded_number_of_machines() -> None:
    members = [AMember(f"mem_{number}", "worker", node_name=f"gpu-{number}", adapter_detail={}) for number in range(64)]
    assert len(plan.to_look_at(members, cluster())) == plan.DIRECT_LOOKS_MAX


def test_a_machine_that_fails_after_many_others_is_asked_at_the_next_look_and_the_others_in_turns() -> None:
    detail = {"node_name": "gpu-9", "findings": ["MachineSilent"]}
    silent = [AMember(f"mem_1{number}", "worker", "failed", adapter_detail=detail) for number in range(12)]
    turns = [plan.to_look_at([*silent, WORKER], cluster(), turn) for turn in range(4)]
    assert [asked[0] for asked in turns] == [WORKER] * 4
    assert [each for asked in turns for each in asked[1:]] == silent
    assert {len(asked) for asked in turns} == {plan.DIRECT_LOOKS_MAX}


def test_new_faults_do_not_keep_the_app_from_asking_a_machine_with_a_known_one() -> None:
    news = [AMember(f"mem_{number}", "worker", node_name=f"gpu-{number}", adapter_detail={}) for number in range(9)]
    known = msgspec.structs.replace(WORKER, adapter_detail={"node_name": "gpu-2", "findings": ["SlurmdDown"]})
    assert known in plan.to_look_at([*news, known], cluster())


def test_workers_are_not_judged_while_slurmctld_does_not_answer() -> None:
    seen = msgspec.structs.replace(cluster(), scheduler=DOWN, nodes=None)
    decision = plan.decide("slurm", [CONTROLLER, WORKER], seen, {})
    assert [verdict.member_id for verdict in decision.verdicts] == ["mem_1"]
    assert [(each.type, each.ok) for each in decision.conditions] == [
        ("SchedulerAnswers", False),
        ("AccountingAnswers", True),
    ]


def test_a_silent_controller_machine_fails_its_own_member_only() -> None:
    decision = plan.head_silent("slurm", [CONTROLLER], CONTROLLER, "timed out")
    assert [(verdict.member_id, verdict.status) for verdict in decision.verdicts] == [("mem_1", "failed")]


def test_a_line_that_was_cut_is_no_observation() -> None:
    with pytest.raises(ValueError, match="printed no observation"):
        observed.parse('{"ping": "Slurm', "lab")
    with pytest.raises(ValueError, match="cut off"):
        observed.parse_direct("==report==\n{}")


PEOPLE = (Person("ada", 20000, 20000), Person("bob", 20001, 20001, has_left=True))


@pytest.mark.parametrize(
    ("associations", "repair"),
    [
        ({"ada": True, "bob": False, "researcher": True}, ""),
        ({"ada": True}, ""),
        ({"researcher": True}, "PeopleChanged: ada cannot submit jobs yet"),
        ({"ada": False}, "PeopleChanged: ada cannot submit jobs yet"),
        ({"ada": True, "bob": True}, "PeopleChanged: bob left the project and can still submit jobs"),
    ],
)
def test_a_controller_whose_slurm_lacks_people_is_repaired_and_stays_ready(
    associations: dict[str, bool], repair: str
) -> None:
    seen = cluster(associations=associations, unplaced=frozenset({"ada"} - set(associations)))
    [verdict] = plan.decide("slurm", [CONTROLLER], seen, {}, PEOPLE).verdicts
    assert (verdict.status, verdict.repair) == ("ready", repair)


def test_a_person_without_a_unix_account_is_named_and_needs_no_repair() -> None:
    [verdict] = plan.decide("slurm", [CONTROLLER], cluster(associations={}), {}, PEOPLE).verdicts
    assert (verdict.repair, verdict.detail and verdict.detail["people_without_account"]) == ("", ["ada"])


def test_users_and_jobs_that_could_not_be_read_are_shown_as_they_were_before() -> None:
    before = {"people_without_account": ["tom"], "jobs_of_blocked_users": {"bob": "7"}}
    controller = msgspec.structs.replace(CONTROLLER, adapter_detail=before)
    for seen, waiting in (
        (cluster(associations={}, users_read=False), ["tom"]),
        (cluster(associations={"ada": True}, blocked_jobs=None), []),
    ):
        [verdict] = plan.decide("slurm", [controller], seen, {}, PEOPLE).verdicts
        assert verdict.detail is not None
        assert verdict.detail["people_without_account"] == waiting
        assert verdict.detail["jobs_of_blocked_users"] == {"bob": "7"}


def test_a_watch_that_fails_on_a_machine_that_answers_is_no_reason_to_give_the_cluster_up() -> None:
    decision = plan.unwatched("slurm", [CONTROLLER, WORKER], CONTROLLER, "python3 ended with 1")
    [verdict] = decision.verdicts
    assert (verdict.status, verdict.reason.startswith("WatchFailed: ")) == ("degraded", True)
    assert "decommission" not in verdict.fix
    assert [condition.ok for condition in decision.conditions] == [None]


def test_a_node_whose_slurmd_someone_masked_is_left_alone_also_when_slurm_shows_it_as_down() -> None:
    down = node(flags=frozenset({"DOWN"}), slurmd_port="refused", is_stale=True)
    findings = found(down, DirectLook(units={"slurmd": "masked"}))
    assert findings[0].code == checks.SLURMD_MASKED
    assert not any(finding.repairs for finding in findings)


def test_the_jobs_of_people_who_left_are_named_on_the_controller_with_the_command_that_ends_them() -> None:
    jobs = {"bob": BlockedJobs(22, ("7", "8"))}
    seen = cluster(associations={"ada": True, "bob": False}, blocked_jobs=jobs)
    [verdict] = plan.decide("slurm", [CONTROLLER], seen, {}, PEOPLE).verdicts
    assert (verdict.status, verdict.repair) == ("ready", "")
    assert "bob: 7, 8 and 20 more. To end them: gpuaas ssh gpu-1 --root -- sudo scancel -u bob" in verdict.reason
    assert verdict.detail is not None
    assert verdict.detail["jobs_of_blocked_users"] == {"bob": "7, 8 and 20 more"}
    [verdict] = plan.decide("slurm", [CONTROLLER], cluster(associations={"ada": True}), {}, PEOPLE).verdicts
    assert (verdict.reason, verdict.detail and verdict.detail["jobs_of_blocked_users"]) == ("", {})


def test_people_are_not_compared_while_accounting_does_not_answer() -> None:
    [verdict] = plan.decide("slurm", [CONTROLLER], cluster(accounting=DOWN), {}, PEOPLE).verdicts
    assert "PeopleChanged" not in verdict.repair


def test_a_fix_names_the_member_if_its_machine_has_several() -> None:
    worker = msgspec.structs.replace(WORKER, node_name="gpu-1")
    decision = plan.decide("slurm", [CONTROLLER, worker], cluster(scheduler=DOWN), {})
    assert decision.verdicts[0].fix == "gpuaas member repair slurm gpu-1/controller"


def test_a_lost_controller_machine_is_left_by_a_decommission_because_it_cannot_be_removed() -> None:
    [verdict] = plan.head_silent("slurm", [CONTROLLER], CONTROLLER, "timed out").verdicts
    assert "gpuaas decommission slurm --force --reason 'machine lost'" in verdict.fix
    assert "member remove" not in verdict.fix


def test_a_reason_states_who_repairs_the_member_and_ends_with_the_fix() -> None:
    repaired = plan.Verdict(
        "mem_2", "failed", "SlurmdDown: x.", "gpuaas member repair slurm gpu-2", repair="SlurmdDown"
    )
    by_hand, left = "Fix by hand: gpuaas member repair slurm gpu-2", msgspec.structs.replace(repaired, repair="")
    assert plan.sentence(repaired) == f"SlurmdDown: x. The app repairs it by itself. {by_hand}"
    assert plan.sentence(left) == "SlurmdDown: x. Fix: gpuaas member repair slurm gpu-2"
    given_up = plan.sentence(repaired, given_up="20 repairs in an hour.")
    assert "does not repair it again now: 20 repairs in an hour. Fix: gpuaas member repair" in given_up
    assert plan.sentence(plan.Verdict("mem_2", "ready")) == ""


FAR_BEHIND = DirectLook(report=SOUND, scheduler=DOWN, clock_off_s=-120)
SILENT = node(is_stale=True, flags=frozenset({"DOWN", "NOT_RESPONDING"}), clock_off_s=30)


def test_a_clock_that_is_far_off_is_the_cause_of_the_other_faults_and_no_repair_is_requested() -> None:
    first, *others = found(SILENT, FAR_BEHIND)
    assert (first.code, first.status) == ("ClockOff", "failed")
    assert "120 s behind" in first.reason, "the direct look counts: Slurm refuses later reports"
    assert [(finding.code, finding.repairs) for finding in others] == [("NodeDown", False)]


def test_a_clock_is_seen_to_be_off_also_on_a_machine_without_a_report() -> None:
    assert found(node(report=None, is_stale=True), DirectLook(clock_off_s=-600))[0].code == "ClockOff"


def test_a_clock_that_is_a_little_off_does_not_keep_the_app_from_a_repair() -> None:
    stopped = DirectLook(report=SOUND, units={"slurmd": "inactive"}, clock_off_s=20)
    assert [(each.code, each.repairs) for each in found(node(slurmd_port="refused"), stopped)] == [
        ("SlurmdDown", True),
        ("ClockOff", False),
    ]


HEAD_WITH_CHRONY = msgspec.structs.replace(HEAD, report=Report(key="aa", time_service="chrony"))


def of_clocks(
    head_off_s: int | None, *nodes: ObservedNode, direct: dict[str, DirectLook] | None = None
) -> dict[str, plan.Verdict]:
    """Return the verdicts on slurmctld's machine, gpu-2 and gpu-3. The first clock is compared with the app's."""
    other = AMember("mem_3", "worker", node_name="gpu-3", adapter_detail={"node_name": "gpu-3"})
    seen = cluster(*nodes, own=HEAD_WITH_CHRONY)
    decision = plan.decide("slurm", [CONTROLLER, WORKER, other], seen, direct or {}, head_off_s=head_off_s)
    return {verdict.member_id: verdict for verdict in decision.verdicts}


def test_of_two_clocks_that_differ_the_one_is_right_with_which_the_clock_of_the_app_agrees() -> None:
    behind = [node(clock_off_s=-31), node(name="gpu-3", clock_off_s=-29)]
    verdicts = of_clocks(30, *behind)
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "mem_1": "degraded",
        "mem_2": "ready",
        "mem_3": "ready",
    }
    assert verdicts["mem_1"].reason.startswith("ClockOff: the clock of gpu-1 is 30 s ahead of")
    assert verdicts["mem_1"].fix == "gpuaas ssh gpu-1 --root -- sudo systemctl restart chrony"


@pytest.mark.parametrize("off_s", [15, 45, 125, 595])
@pytest.mark.parametrize("jitter_s", [-3, 0, 3])
def test_two_differences_that_are_rounded_in_other_directions_are_still_the_same(off_s: int, jitter_s: int) -> None:
    head_off_s = observed.clock_off_s(1000 + off_s, 1000)
    verdicts = of_clocks(head_off_s, node(clock_off_s=-off_s + jitter_s), node(name="gpu-3"))
    assert (verdicts["mem_1"].status, verdicts["mem_2"].status) == ("degraded", "ready")


@pytest.mark.parametrize("head_off_s", [None, 0, -30, 60], ids=["unknown", "right", "as the worker", "another"])
def test_a_clock_with_which_the_clock_of_the_app_does_not_agree_is_wrong(head_off_s: int | None) -> None:
    verdicts = of_clocks(head_off_s, node(clock_off_s=-31), node(name="gpu-3"))
    assert {name: verdict.status for name, verdict in verdicts.items()} == {
        "mem_1": "ready",
        "mem_2": "degraded",
        "mem_3": "ready",
    }


def test_a_clock_of_slurmctld_that_is_far_off_is_the_cause_of_the_faults_of_all_workers() -> None:
    silent = [SILENT, msgspec.structs.replace(SILENT, name="gpu-3")]
    verdicts = of_clocks(120, *silent, direct={"mem_2": FAR_BEHIND, "mem_3": FAR_BEHIND})
    command = "gpuaas ssh gpu-1 --root -- sudo systemctl restart chrony"
    assert {(verdict.reason[:35], verdict.fix, verdict.repair) for verdict in verdicts.values()} == {
        ("ClockOff: the clock of gpu-1 is 120", command, "")
    }
    assert [verdicts[name].status for name in ("mem_1", "mem_2", "mem_3")] == ["degraded", "failed", "failed"]


@pytest.mark.parametrize(
    ("service", "command"),
    [
        ("chrony", "gpuaas ssh gpu-2 --root -- sudo systemctl restart chrony"),
        ("", "gpuaas ssh gpu-2 --root -- sudo apt-get install -y systemd-timesyncd"),
    ],
)
def test_the_fix_of_a_clock_names_the_time_service_of_the_machine(service: str, command: str) -> None:
    report = msgspec.structs.replace(SOUND, time_service=service)
    assert found(node(report=report, clock_off_s=30))[0].fix.endswith(command)


def test_the_fix_of_a_clock_does_not_claim_that_a_machine_without_a_report_has_no_time_service() -> None:
    fix = found(node(report=None, is_stale=True), DirectLook(clock_off_s=-120))[0].fix
    assert ("install" not in fix, "sudo systemctl restart systemd-timesyncd" in fix) == (True, True)


@pytest.mark.parametrize(("off_s", "is_open"), [(599, True), (600, False), (-3599, True), (-3600, False)])
def test_the_fix_of_a_clock_is_at_the_console_if_no_login_is_possible(off_s: int, is_open: bool) -> None:
    assert ("console" not in found(node(clock_off_s=off_s))[0].fix) == is_open


def test_a_machine_that_refuses_the_certificate_is_not_called_silent() -> None:
    refused = DirectLook(
        unreachable="machine gpu-2 (10.0.0.2:22) cannot be reached: Permission denied for user a-ro on host"
    )
    (finding,) = found(node(is_stale=True), refused)
    assert (finding.code, finding.status, finding.repairs) == ("LoginRefused", "failed", False)
    assert "set its clock" in finding.fix
    refusal = plan.head_silent("slurm", [CONTROLLER, WORKER], CONTROLLER, refused.unreachable)
    assert refusal.verdicts[0].reason.startswith("LoginRefused: machine gpu-1")


@pytest.mark.parametrize(("theirs", "off_s"), [(1000, 0), (1009, 0), (1119, 120), (881, -120)])
def test_a_direct_look_compares_two_clocks_and_ignores_small_differences(theirs: int, off_s: int) -> None:
    assert observed.compared(DirectLook(clock=theirs), 1000).clock_off_s == off_s


def test_clocks_are_not_compared_if_one_of_the_machines_does_not_answer() -> None:
    assert observed.compared(DirectLook(clock=1000), None).clock_off_s is None
    assert observed.compared(DirectLook(unreachable="timed out"), 1000).clock_off_s is None


def test_a_difference_of_clocks_that_only_jitters_is_no_change() -> None:
    seen: dict[str, Any] = {}
    watched = [watch_program.freshness("gpu-2", {"up": up, "t": time.time() + off}, seen) for up, off in JITTER]
    assert [each["clock_off_s"] for each in watched] == [0, 120, 120, 0]


def test_clocks_agree_as_soon_as_the_clock_of_slurmctld_is_set_right(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    right = time.time()
    monkeypatch.setattr(time, "time", lambda: right + 20)
    for up in (1, 2):
        watched = watch_program.freshness("gpu-2", {"up": up, "t": right}, seen)
    assert watched["clock_off_s"] == -20
    monkeypatch.setattr(time, "time", lambda: right)
    assert watch_program.freshness("gpu-2", {"up": 2, "t": right}, seen)["clock_off_s"] == 0


JITTER = [(1, 120), (2, 120), (3, 118), (4, 2)]
"""Uptime of the machine and how far its clock is ahead, in four reports; the first may be an old one."""
