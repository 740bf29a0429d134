"""Stop, start and restart without machines: no job is lost without force, and a stopped cluster is no broken one."""

import dataclasses
from collections.abc import AsyncIterator

import pytest
from crashes import ended_despite_crashes
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster
from test_slurm_health import until

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}
ALL = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
OFTEN = dataclasses.replace(QUICK, health_every_s=0.05)


@pytest.fixture
async def cluster() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS, settings=OFTEN) as deployed:
        ended = await deployed.perform("deploy")
        assert ended.status == "succeeded", ended.error
        deployed.slurm.changes.clear()
        yield deployed


async def test_slurmctld_stops_before_the_workers_and_accounting_stops_last(cluster: NewCluster) -> None:
    ended = await cluster.perform("stop")
    assert ended.status == "succeeded", ended.error
    units = [change.split()[1] for change in cluster.slurm.changes if "health" not in change]
    assert units == ["slurmctld", "slurmd", "slurmd", "slurmd", "slurmdbd", "mariadb"]
    assert (cluster.status(), cluster.statuses()) == ("stopped", dict.fromkeys(ALL, "drained"))
    assert {member.status_reason for member in cluster.platform.members(cluster.instance)} == {"the cluster is stopped"}


async def test_a_stop_is_refused_while_jobs_run_and_names_them(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2"), FakeJob(8, node="")]
    ended = await cluster.perform("stop")
    assert (ended.error.failure_class, ended.error.message) == ("refused", "1 job running: 7 (ada)")
    assert "--force" in ended.error.fix
    assert (cluster.status(), cluster.slurm.changes) == ("running", [])
    assert cluster.slurm.partition_states == [], "they are open"


async def test_a_refused_stop_opens_partitions_that_an_earlier_operation_has_left_closed(cluster: NewCluster) -> None:
    cluster.slurm.closed, cluster.slurm.jobs = {"main": "down"}, [FakeJob(7, node="gpu-2")]
    ended = await cluster.perform("stop")
    assert (ended.error.failure_class, cluster.slurm.closed) == ("refused", {"main": "up"})


async def test_a_stop_that_cannot_read_the_queue_after_the_partitions_are_closed_opens_them(
    cluster: NewCluster,
) -> None:
    cluster.slurm.queue_fails_at_close = True
    ended = await cluster.perform("stop")
    assert (ended.error.failure_class, cluster.slurm.partition_states) == ("refused", ["down", "up"])


async def test_a_forced_stop_that_cannot_end_a_job_opens_the_partitions(cluster: NewCluster) -> None:
    cluster.slurm.jobs, cluster.slurm.nodes["gpu-2"] = [FakeJob(7, node="gpu-2")], ["DOWN", "NOT_RESPONDING"]
    ended = await cluster.perform("stop", force=True)
    assert (ended.status, cluster.slurm.partition_states) == ("failed", ["down", "up"])


async def test_a_job_that_starts_before_the_partitions_are_closed_refuses_the_stop(cluster: NewCluster) -> None:
    cluster.slurm.jobs_at_close = [FakeJob(9, node="gpu-2")]
    ended = await cluster.perform("stop")
    assert (ended.error.failure_class, "9 (ada)" in ended.error.message) == ("refused", True)
    assert (cluster.slurm.partition_states, cluster.slurm.changes) == (["down", "up"], [])


async def test_queued_jobs_stay_in_the_queue_over_a_stop_and_a_start(cluster: NewCluster) -> None:
    cluster.slurm.jobs = [FakeJob(8, node="")]
    await cluster.perform("stop")
    ended = await cluster.perform("start")
    assert ended.status == "succeeded", ended.error
    assert [job.job_id for job in cluster.slurm.jobs] == [8]
    assert (cluster.status(), "down" in cluster.slurm.closed.values()) == ("running", False)


async def test_a_forced_stop_requeues_jobs_and_cancels_those_that_cannot_be(cluster: NewCluster) -> None:
    cluster.slurm.jobs, cluster.slurm.requeues = [FakeJob(7, node="gpu-2"), FakeJob(8, node="gpu-3")], {7}
    ended = await cluster.perform("stop", force=True)
    assert ended.status == "succeeded", ended.error
    assert [(job.job_id, job.node) for job in cluster.slurm.jobs] == [(7, "")]


async def test_a_stop_that_cannot_read_the_queue_is_refused_and_force_stops_it(cluster: NewCluster) -> None:
    cluster.slurm.is_up = False
    ended = await cluster.perform("stop")
    assert (ended.error.failure_class, "it is unknown whether jobs run" in ended.error.message) == ("refused", True)
    forced = await cluster.perform("stop", force=True)
    assert (forced.status, cluster.status()) == ("succeeded", "stopped"), forced.error


@pytest.mark.parametrize("kind", ["stop", "restart"])
async def test_without_force_every_machine_must_answer(cluster: NewCluster, kind: str) -> None:
    cluster.host("gpu-3").reachable = False
    ended = await cluster.perform(kind)
    assert (ended.error.failure_class, "gpu-3" in ended.error.message) == ("refused", True)
    assert (cluster.slurm.changes, "slurmctld" in cluster.host("gpu-1").active) == ([], True)


async def test_a_forced_stop_reports_the_machine_that_did_not_answer(cluster: NewCluster) -> None:
    cluster.host("gpu-3").reachable = False
    ended = await cluster.perform("stop", force=True)
    assert ended.status == "succeeded", ended.error
    member = cluster.member_of(cluster.instance, "gpu-3")
    assert (member.status, "its slurmd was not stopped" in member.status_reason) == ("drained", True)


async def test_the_steward_shows_a_stopped_cluster_as_stopped_and_repairs_nothing(cluster: NewCluster) -> None:
    await cluster.perform("stop")
    await until(lambda: _conditions(cluster).get("SchedulerAnswers") == ("unknown", "Stopped"))
    assert _conditions(cluster)["AccountingAnswers"] == ("unknown", "Stopped")
    assert (cluster.status(), cluster.statuses()) == ("stopped", dict.fromkeys(ALL, "drained"))
    kinds = {operation.kind for operation in cluster.platform.records.operations.values()}
    assert kinds == {"deploy", "stop"}


async def test_a_worker_that_people_drained_is_drained_after_a_stop_and_a_start(cluster: NewCluster) -> None:
    await cluster.perform("drain", [cluster.member_of(cluster.instance, "gpu-2")])
    await cluster.perform("stop")
    ended = await cluster.perform("start")
    assert ended.status == "succeeded", ended.error
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"]
    assert "drained_by" in cluster.member_of(cluster.instance, "gpu-2").adapter_detail


async def test_a_restart_restarts_every_daemon_beside_jobs_and_leaves_drained_workers_drained(
    cluster: NewCluster,
) -> None:
    await cluster.perform("drain", [cluster.member_of(cluster.instance, "gpu-2")])
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3")]
    ended = await cluster.perform("restart")
    assert ended.status == "succeeded", ended.error
    restarted = {(name, argv[2]) for name in ALL for argv in cluster.host(name).ran if argv[:2] == RESTART}
    assert {("gpu-1", "slurmctld"), ("gpu-1", "slurmdbd"), ("gpu-2", "slurmd"), ("gpu-4", "slurmd")} <= restarted
    assert (cluster.statuses()["gpu-2"], [job.job_id for job in cluster.slurm.jobs]) == ("drained", [7])


@pytest.mark.parametrize("kind", ["restart", "start", "repair"])
async def test_a_login_machine_is_reported_as_one_and_keeps_what_a_replace_left(cluster: NewCluster, kind: str) -> None:
    login = cluster.member_of(cluster.instance, "gpu-4")
    replaced = {"replaced": {"node_name": "gpu-9", "left_behind": "Slurm (login) was not removed"}}
    cluster.platform.records.change_member(login, adapter_detail=login.adapter_detail | replaced)
    if kind == "start":
        await cluster.perform("stop")
    ended = await cluster.perform(kind, [login] if kind == "repair" else None)
    assert ended.status == "succeeded", ended.error
    after = cluster.member_of(cluster.instance, "gpu-4")
    assert (after.status, set(after.adapter_detail)) == ("ready", set(login.adapter_detail) | {"replaced"})
    assert after.adapter_detail["replaced"] == replaced["replaced"]


@pytest.mark.parametrize("kind", ["restart", "repair"])
async def test_a_login_machine_without_its_scheduler_is_not_reported_as_ready(cluster: NewCluster, kind: str) -> None:
    cluster.faults.users_cannot_ping = True
    login = cluster.member_of(cluster.instance, "gpu-4")
    ended = await cluster.perform(kind, [login] if kind == "repair" else None)
    assert ended.status == "failed"
    assert cluster.statuses()["gpu-4"] == "failed"


RESTART = ("systemctl", "restart")


async def test_a_stopped_cluster_is_decommissioned_by_force_because_its_queue_cannot_be_read(
    cluster: NewCluster,
) -> None:
    await cluster.perform("stop")
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, "it is unknown whether jobs run" in ended.error.message) == ("refused", True)
    assert cluster.status() == "stopped"
    forced = await cluster.perform("decommission", force=True)
    assert (forced.status, cluster.statuses()) == ("succeeded", {}), forced.error
    assert [cluster.host(name).installed for name in ALL] == [set()] * 4


async def test_a_cluster_is_stopped_and_started_twice_with_the_same_result(cluster: NewCluster) -> None:
    for _ in range(2):
        for kind, status in (("stop", "stopped"), ("start", "running")):
            ended = await cluster.perform(kind)
            assert (ended.status, cluster.status()) == ("succeeded", status), ended.error
    assert cluster.statuses() == dict.fromkeys(ALL, "ready")


async def test_a_cancelled_stop_also_starts_the_machines_that_were_stopped_already(cluster: NewCluster) -> None:
    host = cluster.host("gpu-3")
    # Before the command that stops slurmd there are the connection and two that check whether the machine answers.
    host.hangs_after = 3
    operation_id = await cluster.started("stop")
    await host.hangs.wait()
    await until(lambda: [cluster.statuses()[name] for name in ("gpu-2", "gpu-4")] == ["drained", "drained"])
    cluster.platform.cancel(operation_id)
    host.hangs_after = None
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    assert (cluster.status(), cluster.statuses()) == ("running", dict.fromkeys(ALL, "ready"))
    assert all("slurmd" in cluster.host(name).active for name in ("gpu-2", "gpu-3", "gpu-4"))


async def test_a_start_that_is_cancelled_waits_for_the_jobs_that_have_started(cluster: NewCluster) -> None:
    await cluster.perform("stop")
    host = cluster.host("gpu-3")
    host.hangs_after = 0
    operation_id = await cluster.started("start")
    await host.hangs.wait()
    await cluster.platform.until(operation_id, lambda now: any(step.name == "start slurmd" for step in now.steps))
    cluster.slurm.jobs = [FakeJob(7, node="gpu-2")]
    cluster.platform.cancel(operation_id)
    host.hangs_after = None
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    assert "slurmctld" in cluster.host("gpu-1").active
    cluster.slurm.jobs = []
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.status()) == ("cancelled", "stopped"), ended.error


@pytest.mark.parametrize("kind", ["stop", "start", "restart"])
async def test_a_controller_that_dies_at_every_boundary_still_does_it(kind: str) -> None:
    async with new_cluster(MEMBERS) as cluster:
        await cluster.perform("deploy")
        if kind == "start":
            await cluster.perform("stop")
    operation = cluster.platform.request(cluster.instance, kind)  # type: ignore[arg-type]
    ended, crashed = await ended_despite_crashes(cluster, operation.operation_id)
    assert ended.status == "succeeded", ended.error
    assert {f"{kind} slurmctld running", f"{kind} slurmd running", f"{kind} slurmd succeeded"} <= crashed
    assert set(cluster.statuses().values()) == ({"drained"} if kind == "stop" else {"ready"})
    assert ("slurmctld" in cluster.host("gpu-1").active) is (kind != "stop")


def _conditions(cluster: NewCluster) -> dict[str, tuple[str, str]]:
    instance = cluster.platform.records.instances[cluster.instance.instance_id]
    return {condition.type: (condition.status, condition.reason) for condition in instance.conditions}
