"""What a look at a cluster means. Facts in, findings and verdicts out."""

from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm import checks, plan
from gpuaas_app_slurm.checks import Finding
from gpuaas_app_slurm.workload import observed
from gpuaas_app_slurm.workload.observed import Closer, Observed, ObservedNode, Report, Reported
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


CONTROLLER = AMember("mem_1", "controller", node_name="gpu-1", adapter_detail={})
WORKER = AMember("mem_2", "worker")


def node(**changes: Any) -> ObservedNode:
    fields: dict[str, Any] = {"name": "gpu-2", "flags": frozenset({"IDLE"}), "version": "24.11.5"}
    return ObservedNode(**(fields | {"report": SOUND, "is_stale": False} | changes))


def cluster(*nodes: ObservedNode, **changes: Any) -> Observed:
    fields: dict[str, Any] = {"scheduler": UP, "accounting": UP, "own": HEAD, "version": "24.11.5"}
    return Observed(nodes={each.name: each for each in nodes}, **(fields | changes))


def found(seen: ObservedNode | None, closer: Closer | None = None) -> list[Finding]:
    return checks.of_worker(MACHINE, seen, closer, HEAD, "24.11.5")


def test_a_sound_worker_has_no_finding() -> None:
    assert found(node()) == []


@pytest.mark.parametrize(
    ("seen", "closer", "code", "status", "repairs"),
    [
        (node(slurmd_port="silent"), Closer(unreachable="timed out"), "MachineSilent", "failed", False),
        (node(is_stale=True), Closer(unreachable="timed out"), "MachineSilent", "failed", False),
        (node(slurmd_port="refused"), Closer(units={"slurmd": "inactive"}), "SlurmdDown", "failed", True),
        (
            node(slurmd_port="refused"),
            Closer(report=Report(units={"slurmd": ("restarting", 4)}, key="aa")),
            "SlurmdCrashLoop",
            "failed",
            True,
        ),
        (node(is_stale=True), Closer(report=Report(key="bb"), scheduler=DOWN), "KeyMismatch", "failed", True),
        (None, Closer(report=SOUND), "NodeDeleted", "failed", True),
        (
            node(flags=frozenset({"DOWN"}), reason="Not responding", reason_by="slurm"),
            Closer(report=SOUND),
            "NodeDown",
            "failed",
            True,
        ),
        (
            node(flags=frozenset({"DOWN"}), reason="bad fan", reason_by="ada"),
            Closer(report=SOUND),
            "NodeDown",
            "failed",
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
            Closer(report=msgspec.structs.replace(SOUND, full={"/": 1}), scheduler=DOWN),
            "DiskFull",
            "degraded",
            False,
        ),
        (node(is_stale=True), Closer(report=SOUND, scheduler=DOWN), "ClusterUnreachable", "degraded", True),
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
            Closer(report=SOUND, units={"slurmd": "active", "gpuaas-slurm-health": "failed"}),
            "ReporterDown",
            "degraded",
            True,
        ),
    ],
)
def test_each_fault_of_a_worker_is_found_with_a_reason_and_a_fix(
    seen: ObservedNode | None, closer: Closer | None, code: str, status: str, repairs: bool
) -> None:
    worst = found(seen, closer)[0]
    assert (worst.code, worst.status, worst.repairs) == (code, status, repairs)
    assert "gpu-2" in worst.reason
    assert "gpuaas " in worst.fix


def test_a_report_that_is_only_late_is_no_fault() -> None:
    closer = Closer(report=SOUND, units={"slurmd": "active", "gpuaas-slurm-health": "active"})
    assert found(node(is_stale=True), closer) == []


def test_a_machine_that_only_the_controller_of_the_app_cannot_reach_keeps_its_own_findings() -> None:
    assert found(node(flags=frozenset({"DOWN"})), Closer(unreachable="no route"))[0].code == "NodeDown"


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


def verdicts(member: AMember, seen: Observed, **closer: Closer) -> tuple[plan.Verdict, ...]:
    return plan.decide("slurm", [CONTROLLER, member], seen, {"mem_2": closer["at"]} if closer else {}).verdicts[1:]


def test_a_member_returns_to_ready_when_its_machine_is_sound_again() -> None:
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="failed"), cluster(node()))
    assert (verdict.status, verdict.reason, verdict.repair) == ("ready", "", "")


def test_a_member_that_never_joined_is_left_to_its_operation() -> None:
    assert verdicts(msgspec.structs.replace(WORKER, status="failed", adapter_detail={}), cluster(node())) == ()


def test_a_drained_member_stays_drained_while_its_node_is() -> None:
    drained = node(flags=frozenset({"IDLE", "DRAIN"}), reason="gpuaas:op_1: repair")
    [verdict] = verdicts(msgspec.structs.replace(WORKER, status="drained"), cluster(drained))
    assert (verdict.status, verdict.reason) == ("drained", "")


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
    assert verdicts(WORKER, seen, at=Closer(unreachable="timed out"))[0].status == "failed"


def test_a_look_asks_a_bounded_number_of_machines() -> None:
    members = [AMember(f"mem_{number}", "worker", node_name=f"gpu-{number}", adapter_detail={}) for number in range(64)]
    assert len(plan.to_look_at(members, cluster())) == plan.CLOSER_LOOKS_MAX


def test_workers_are_not_judged_while_slurmctld_does_not_answer() -> None:
    seen = msgspec.structs.replace(cluster(), scheduler=DOWN, nodes=None)
    decision = plan.decide("slurm", [CONTROLLER, WORKER], seen, {})
    assert [verdict.member_id for verdict in decision.verdicts] == ["mem_1"]
    assert [(each.type, each.ok) for each in decision.conditions] == [
        ("SchedulerAnswers", False),
        ("AccountingAnswers", True),
    ]


def test_a_silent_controller_machine_fails_its_own_member_only() -> None:
    decision = plan.blind("slurm", [CONTROLLER], CONTROLLER, "timed out")
    assert [(verdict.member_id, verdict.status) for verdict in decision.verdicts] == [("mem_1", "failed")]


def test_a_line_that_was_cut_is_no_observation() -> None:
    with pytest.raises(ValueError, match="printed no observation"):
        observed.parse('{"ping": "Slurm', "lab")
    with pytest.raises(ValueError, match="cut off"):
        observed.parse_closer("==report==\n{}")


PEOPLE = (Person("ada", 20000, 20000), Person("bob", 20001, 20001, has_left=True))


@pytest.mark.parametrize(
    ("associations", "repair"),
    [
        ({"ada": True, "bob": False, "researcher": True}, ""),
        ({"ada": True}, ""),
        ({}, "PeopleChanged: ada cannot submit jobs yet"),
        ({"ada": False}, "PeopleChanged: ada cannot submit jobs yet"),
        ({"ada": True, "bob": True}, "PeopleChanged: bob left the project and can still submit jobs"),
    ],
)
def test_a_controller_whose_slurm_lacks_people_is_repaired_and_stays_ready(
    associations: dict[str, bool], repair: str
) -> None:
    seen = cluster(associations=associations)
    [verdict] = plan.decide("slurm", [CONTROLLER], seen, {}, PEOPLE).verdicts
    assert (verdict.status, verdict.repair) == ("ready", repair)


def test_people_are_not_compared_while_accounting_does_not_answer() -> None:
    [verdict] = plan.decide("slurm", [CONTROLLER], cluster(accounting=DOWN), {}, PEOPLE).verdicts
    assert "PeopleChanged" not in verdict.repair


def test_a_fix_names_the_member_if_its_machine_has_several() -> None:
    worker = msgspec.structs.replace(WORKER, node_name="gpu-1")
    decision = plan.decide("slurm", [CONTROLLER, worker], cluster(scheduler=DOWN), {})
    assert "Fix: gpuaas member repair slurm gpu-1/controller" in decision.verdicts[0].reason


def test_a_lost_controller_machine_is_left_by_a_decommission_because_it_cannot_be_removed() -> None:
    [verdict] = plan.blind("slurm", [CONTROLLER], CONTROLLER, "timed out").verdicts
    assert "gpuaas decommission slurm --force" in verdict.reason
    assert "member remove" not in verdict.reason
