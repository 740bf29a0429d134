"""Looks at a cluster between operations, without machines: what they ask machines, report and request."""

import asyncio
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog
from gpuaas_app_slurm import plan
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, SETTINGS, Cluster, deployed_cluster
from gpuaas_contract.operations import Operation
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_contract.posix import POSIX_PEOPLE, PosixPerson
from gpuaas_sdk import checks
from gpuaas_sdk.checks import Check
from gpuaas_sdk.machine import Command, Completed
from gpuaas_sdk.testing.machines import FakeHost

RECORDED = json.loads((Path(__file__).parent / "samples" / "watch.json").read_text())
OFTEN = dataclasses.replace(SETTINGS, health_every_s=0.05, direct_look_s=1.0, watch_silent_s=3600)
"""The fake watch prints each line once, without signs of life."""
CLOSER = """
==report==
{report}
==ping==
Slurmctld(primary) at gpu-1 is UP
==units==
Id=slurmd.service
ActiveState={slurmd}

Id=gpuaas-slurm-health.service
ActiveState=active
==end==
"""


class HangingHost(FakeHost):
    """A machine that accepts commands and never answers."""

    async def execute(self, command: Command) -> Completed:
        await asyncio.Event().wait()
        raise AssertionError


def line(*nodes: dict[str, Any], **changes: Any) -> str:
    """Return a line of the watch, as recorded, with these nodes."""
    return json.dumps(RECORDED | {"accounting": CLUSTER_NAME, "nodes": list(nodes)} | changes)


def node(name: str, **changes: Any) -> dict[str, Any]:
    recorded: dict[str, Any] = RECORDED["nodes"][-1]
    return recorded | {"name": name} | changes


def direct(slurmd: str = "active") -> str:
    return CLOSER.format(report=json.dumps(RECORDED["nodes"][-1]["report"]), slurmd=slurmd)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition is true, at most a minute."""

    async def ask() -> Check:
        return Check(condition(), "not yet")

    async def ignore(_: str) -> None:
        return None

    check = await checks.until(ask, within_s=60, every_s=0.01, show=ignore)
    assert check.ok


async def looked(cluster: Cluster, times: int = 5) -> None:
    """Wait for so many more looks that read the cluster: each asks for the people of the project."""
    before = _looks(cluster)
    await until(lambda: _looks(cluster) >= before + times)


def shows(cluster: Cluster, text: str) -> None:
    """Have the watch on the machine of slurmctld print a line."""
    cluster.machines.host("gpu-1").printed.append(text)


def repairs(cluster: Cluster) -> list[Operation]:
    return [each for each in cluster.platform.records.operations.values() if each.kind == "repair"]


@pytest.mark.parametrize("workers", [2, 64])
async def test_looks_at_a_sound_cluster_of_any_size_cost_one_connection_and_one_program(workers: int) -> None:
    names = [f"gpu-{number}" for number in range(2, 2 + workers)]
    async with deployed_cluster(*names, settings=OFTEN) as cluster:
        shows(cluster, line(*map(node, names)))
        await looked(cluster)
        await looked(cluster)
        assert [target.host for target in cluster.machines.connected] == ["gpu-1"]
        head = [command.summary[0] for command in cluster.machines.host("gpu-1").commands]
        assert head == ["hostname", "program"]
        assert set(cluster.machines.by_host) == {"gpu-1"}
        assert set(cluster.statuses().values()) == {"ready"}
        assert cluster.member(names[-1]).adapter_detail["slurm_state"] == "IDLE"


async def test_a_change_on_the_platform_is_judged_although_the_cluster_shows_the_same() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        shows(cluster, line(node("gpu-2")))
        await looked(cluster)
        cluster.platform.records.change_member(cluster.member("gpu-2"), status="degraded", status_reason="by hand")
        cluster.platform.records.update_status(cluster.platform.records.instances[cluster.instance.instance_id])

        def is_ready() -> bool:
            shows(cluster, line(node("gpu-2")))  # a sign of life: the kit waits for lines from after the change
            return cluster.member("gpu-2").status == "ready"

        await until(is_ready)


async def test_a_person_who_joins_the_project_is_noticed_although_the_cluster_shows_the_same() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        shows(cluster, line(node("gpu-2"), unplaced=["grace"]))
        await looked(cluster)
        assert repairs(cluster) == []
        cluster.platform.records.people.append(_person("grace", 20007))
        await until(lambda: bool(repairs(cluster)))
        assert "grace cannot submit jobs yet" in repairs(cluster)[0].reason


async def test_a_person_with_the_login_of_a_user_of_the_form_causes_no_repair() -> None:
    """A repair ignores the person, so the next look would request it again."""
    async with deployed_cluster(settings=OFTEN) as cluster:
        left = msgspec.structs.replace(_person("researcher", 20008), state="left")
        cluster.platform.records.people.append(left)
        shows(cluster, line(node("gpu-2"), associations="|\nresearcher|\n"))
        await looked(cluster)
        assert repairs(cluster) == []


async def test_of_many_machines_that_are_lost_at_once_each_is_found() -> None:
    names = [f"gpu-{number}" for number in range(2, 66)]
    async with deployed_cluster(*names, settings=OFTEN) as cluster:
        for name in names:
            cluster.machines.host(name).reachable = False
        shows(cluster, line(*(node(name, slurmd_port="silent", is_stale=True) for name in names)))
        await until(lambda: list(cluster.statuses().values()).count("failed") == len(names))


async def test_a_person_who_joins_is_no_reason_to_put_back_a_file_that_someone_edited() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        edited = RECORDED["own"] | {"report": RECORDED["own"]["report"] | {"drift": ["/etc/slurm/slurm.conf"]}}
        cluster.slurm.stopped_units = {"slurmdbd"}
        cluster.platform.records.people.append(_person("grace", 20007))
        shows(cluster, line(node("gpu-2"), own=edited, unplaced=["grace"]))
        await until(lambda: [each.status for each in repairs(cluster)] == ["succeeded"])
        assert repairs(cluster)[0].reason.startswith(plan.PEOPLE_CHANGED)
        assert "grace" in cluster.slurm.accounting.users
        assert cluster.slurm.stopped_units == {"slurmdbd"}, "the repair restarted more than it was requested for"


async def test_a_worker_that_is_down_is_asked_and_repaired() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.direct = direct("failed")
        shows(cluster, line(node("gpu-2", flags=["DOWN"], slurmd_port="refused")))
        await until(lambda: bool(repairs(cluster)))
        (repair,) = repairs(cluster)
        assert repair.reason.startswith("SlurmdDown: slurmd on gpu-2 is failed")
        assert [target.member_id for target in repair.targets] == [cluster.member("gpu-2").member_id]


async def test_a_dead_reporter_on_the_machine_of_slurmctld_is_repaired_and_its_last_report_shows_no_fault() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        old = {"is_stale": True, "report": {"full": {"/": 1}}}
        shows(cluster, line(node("gpu-2"), own=old))
        await until(lambda: bool(repairs(cluster)))
        (repair,) = repairs(cluster)
        assert repair.reason.startswith("ReporterDown: the health reporter on gpu-1 does not run or hangs")
        controller = cluster.member_of(cluster.instance, "gpu-1")
        assert [target.member_id for target in repair.targets] == [controller.member_id]
        assert "DiskFull" not in controller.status_reason


async def test_a_worker_that_a_person_set_down_as_root_is_shown_and_left_to_that_person() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.direct = direct("failed")
        down = node("gpu-2", flags=["DOWN"], reason="bad fan", reason_by="root", slurmd_port="refused")
        shows(cluster, line(down))
        await until(lambda: cluster.member("gpu-2").status == "degraded")
        await looked(cluster)
        reason = cluster.member("gpu-2").status_reason
        assert reason.startswith("ExternallyDown: root set node gpu-2 down: bad fan. Also: SlurmdDown. Fix: ")
        assert "Ask root, then: " in reason
        assert repairs(cluster) == []


async def test_a_worker_that_was_unwell_is_ready_again_by_itself() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.machines.host("gpu-2").reachable = False
        shows(cluster, line(node("gpu-2", slurmd_port="silent")))
        await until(lambda: cluster.member("gpu-2").status == "failed")
        assert cluster.member("gpu-2").status_reason.startswith("MachineSilent: machine gpu-2")
        cluster.machines.host("gpu-2").reachable = True
        shows(cluster, line(node("gpu-2")))
        await until(lambda: cluster.member("gpu-2").status == "ready")
        assert cluster.member("gpu-2").status_reason == ""


async def test_a_worker_whose_answer_is_cut_off_counts_as_not_answering() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.direct = direct().replace("==end==", "")
        shows(cluster, line(node("gpu-2", is_stale=True)))
        await until(lambda: cluster.member("gpu-2").status == "failed")
        assert "cut off" in cluster.member("gpu-2").status_reason


async def test_a_worker_that_answers_too_late_counts_as_not_answering() -> None:
    async with deployed_cluster(settings=dataclasses.replace(OFTEN, direct_look_s=0.01)) as cluster:
        cluster.machines.by_host["gpu-2"] = HangingHost("gpu-2")
        shows(cluster, line(node("gpu-2", is_stale=True)))
        await until(lambda: cluster.member("gpu-2").status == "failed")
        assert "no answer within 0.01 s" in cluster.member("gpu-2").status_reason


async def test_without_the_machine_of_slurmctld_its_member_fails_and_nothing_is_claimed_about_workers() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.machines.host("gpu-1").reachable = False
        await until(lambda: cluster.statuses()["gpu-1"] == "failed")
        controller = cluster.member_of(cluster.instance, "gpu-1")
        assert controller.status_reason.startswith("MachineSilent: machine gpu-1")
        assert cluster.member("gpu-2").status == "ready"
        conditions = cluster.platform.records.instances[cluster.instance.instance_id].conditions
        assert [(each.type, each.status) for each in conditions if each.type == "SchedulerAnswers"] == [
            ("SchedulerAnswers", "false")
        ]


@pytest.mark.parametrize(("head_off_s", "wrong", "right"), [(120, "gpu-1", "gpu-2"), (0, "gpu-2", "gpu-1")])
async def test_the_machine_with_the_wrong_clock_is_named_also_if_it_is_the_machine_of_slurmctld(
    head_off_s: int, wrong: str, right: str
) -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        cluster.slurm.clock_off_s = head_off_s
        shows(cluster, line(node("gpu-2", clock_off_s=-118)))
        await until(lambda: cluster.statuses()[wrong] == "degraded")
        await looked(cluster)
        assert cluster.member_of(cluster.instance, wrong).status_reason.startswith(f"ClockOff: the clock of {wrong}")
        assert cluster.statuses()[right] == "ready"


async def test_a_fault_that_repairs_did_not_heal_is_repaired_a_bounded_number_of_times_and_the_reason_shows_it() -> (
    None
):
    async with deployed_cluster(settings=OFTEN, repairs_per_hour=2) as cluster:
        cluster.slurm.direct = direct("failed")

        def is_given_up() -> bool:
            shows(cluster, line(node("gpu-2", flags=["DOWN"], slurmd_port="refused")))
            return "The app does not repair it again now" in cluster.member("gpu-2").status_reason

        await until(is_given_up)
        assert len(repairs(cluster)) == 2


async def test_a_controller_without_the_permission_to_read_people_still_looks_after_the_cluster() -> None:
    permissions = CONTROLLER_KEYS - {POSIX_PEOPLE.permission}
    async with deployed_cluster(settings=OFTEN, permissions=permissions) as cluster:
        cluster.machines.host("gpu-2").reachable = False
        shows(cluster, line(node("gpu-2", slurmd_port="silent")))
        await until(lambda: cluster.member("gpu-2").status == "failed")


async def test_a_refused_question_for_people_is_asked_again_after_a_minute_and_not_at_each_look() -> None:
    now_s, asked = 1000.0, 0

    def clock() -> float:
        nonlocal asked
        asked += 1
        return now_s

    permissions = CONTROLLER_KEYS - {POSIX_PEOPLE.permission}
    settings = dataclasses.replace(OFTEN, clock=clock)
    with structlog.testing.capture_logs() as logs:

        def refusals() -> int:
            return sum(entry["event"] == "people.not_readable" for entry in logs)

        async with deployed_cluster(settings=settings, permissions=permissions) as cluster:
            shows(cluster, line(node("gpu-2")))
            await until(lambda: asked > 10)
            assert refusals() == 1
            now_s += 61
            await until(lambda: refusals() == 2)


async def test_a_cluster_whose_controller_is_not_deployed_yet_is_not_judged() -> None:
    async with deployed_cluster(settings=OFTEN) as cluster:
        controller = cluster.member_of(cluster.instance, "gpu-1")
        cluster.platform.records.change_member(controller, status="joining")
        other = cluster.platform.add_instance({"controller": ["gpu-9"]}, name="other", inputs=_inputs(), ready=True)
        cluster.machines.host("gpu-9").printed.append(line())
        await until(lambda: "gpu-9" in cluster.machines.by_host and _detail(cluster, other).get("slurmctld") == "up")
        assert "slurmctld" not in cluster.member_of(cluster.instance, "gpu-1").adapter_detail


def _person(login: str, uid: int) -> PosixPerson:
    return PosixPerson(
        user_id=login, name=login, login=login, uid=uid, gid=uid, state="active", is_admin=False, public_keys=[]
    )


def _looks(cluster: Cluster) -> int:
    return sum(name == POSIX_PEOPLE.name for name, _ in cluster.platform.calls)


def _inputs() -> dict[str, str]:
    return {"cluster_name": CLUSTER_NAME, "controller_allocation_id": "alloc_gpu-9"}


def _detail(cluster: Cluster, instance: Any) -> dict[str, Any]:
    return cluster.member_of(instance, "gpu-9").adapter_detail
