"""The app's handlers without machines: a fake platform, fake machines and a Slurm that answers from memory."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm.workload import home, keys, nodes
from gpuaas_app_slurm.workload.footprint import SLURM
from gpuaas_app_slurm_conformance.fake_slurm import SETTINGS, Cluster, FakeJob, deployed_cluster
from gpuaas_contract.posix import PersonState, PosixPerson
from gpuaas_sdk.installs import receipts, removals


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster() as deployed:
        yield deployed


async def test_a_quiet_cluster_is_closed_and_decommissioned(cluster: Cluster) -> None:
    ended = await cluster.perform("decommission")
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.partition_states == ["down"]
    assert cluster.statuses() == {}


async def test_a_cluster_with_a_job_is_not_closed_and_not_decommissioned(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7)]
    ended = await cluster.perform("decommission")
    assert (ended.status, "1 job running or queued: 7" in ended.error.message) == ("failed", True)
    assert ended.error.fix.endswith(f": gpuaas decommission {cluster.instance.name} --force --reason 'cancel jobs'")
    assert cluster.slurm.partition_states == []
    assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready"}


async def test_a_job_that_starts_before_the_partition_is_closed_reopens_it_and_refuses_the_decommission(
    cluster: Cluster,
) -> None:
    cluster.slurm.jobs_at_close = [FakeJob(8)]
    ended = await cluster.perform("decommission")
    assert (ended.status, "1 job running or queued: 8" in ended.error.message) == ("failed", True)
    assert cluster.slurm.partition_states == ["down", "up"]
    assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready"}


async def test_a_refused_decommission_opens_partitions_that_an_earlier_operation_has_left_closed(
    cluster: Cluster,
) -> None:
    cluster.slurm.closed, cluster.slurm.jobs = {"main": "down"}, [FakeJob(7)]
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, cluster.slurm.partition_states) == ("refused", ["up"])


async def test_a_refused_decommission_leaves_the_queue_held_that_an_unfinished_upgrade_holds(cluster: Cluster) -> None:
    cluster.slurm.closed, cluster.slurm.jobs = {"main": "down"}, [FakeJob(7)]
    held = b"ClusterName=lab\nPartitionName=Upgrade Nodes=workers\n"
    cluster.machines.host("gpu-1").files["/etc/slurm/slurm.conf"] = held
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, cluster.slurm.partition_states) == ("refused", [])


async def test_a_decommission_that_cannot_read_the_queue_after_the_partition_is_closed_opens_it(
    cluster: Cluster,
) -> None:
    cluster.slurm.queue_fails_at_close = True
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, cluster.slurm.partition_states) == ("refused", ["down", "up"])


async def test_a_forced_decommission_cancels_jobs_after_the_partition_is_closed(cluster: Cluster) -> None:
    cluster.slurm.jobs, cluster.slurm.jobs_at_close = [FakeJob(7)], [FakeJob(8)]
    ended = await cluster.perform("decommission", force=True)
    assert ended.status == "succeeded", ended.error
    assert (cluster.slurm.partition_states, cluster.slurm.jobs) == (["down"], [])


async def test_new_workers_are_ready_after_their_first_job(cluster: Cluster) -> None:
    ended = await _add_two(cluster, busy=set())
    assert ended.status == "succeeded", ended.error
    assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], "ready")


async def test_workers_that_are_all_busy_with_other_jobs_need_no_first_job(cluster: Cluster) -> None:
    cluster.slurm.first_job_answers = False
    ended = await _add_two(cluster, busy={"gpu-3", "gpu-4"})
    assert ended.status == "succeeded", ended.error
    assert cluster.statuses() == dict.fromkeys(["gpu-1", "gpu-2", "gpu-3", "gpu-4"], "ready")


@pytest.mark.parametrize("busy", [set(), {"gpu-3"}, {"gpu-2"}], ids=["none", "one of two", "another worker"])
async def test_a_worker_whose_first_job_does_not_run_fails_unless_it_is_busy(cluster: Cluster, busy: set[str]) -> None:
    cluster.slurm.first_job_answers = False
    ended = await _add_two(cluster, busy=busy)
    assert (ended.status, "the first job of researcher failed" in ended.error.message) == ("failed", True)
    statuses = cluster.statuses()
    assert {name: statuses[name] for name in ("gpu-3", "gpu-4")} == {
        name: "ready" if name in busy else "failed" for name in ("gpu-3", "gpu-4")
    }


async def test_a_worker_that_ran_queued_jobs_before_its_first_job_is_ready(cluster: Cluster) -> None:
    cluster.slurm.first_job_answers, cluster.slurm.jobs_end_with_first_job = False, True
    ended = await _add_two(cluster, busy={"gpu-3", "gpu-4"})
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.jobs == []


async def test_a_first_job_that_starts_and_hangs_is_no_proof_that_the_worker_runs_jobs(cluster: Cluster) -> None:
    cluster.slurm.first_job_answers = False
    member = cluster.add_worker("gpu-3")
    cluster.slurm.nodes["gpu-3"] = ["COMPLETING"]
    cluster.slurm.jobs = [FakeJob(40, "gpu-3", name=nodes.CANARY)]
    ended = await cluster.perform("add", [member])
    assert (ended.status, "the first job of researcher failed" in ended.error.message) == ("failed", True)


async def test_a_refused_decommission_leaves_the_instance_running_and_offers_no_undo(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7)]
    ended = await cluster.perform("decommission")
    assert (ended.error.code, ended.error.failure_class) == ("refused", "refused")
    assert {target.outcome for target in ended.targets} == {"refused"}
    assert cluster.status() == "running"
    cluster.slurm.jobs = []
    cluster.platform.retry(ended.operation_id)
    assert (await cluster.platform.ended(ended.operation_id)).status == "succeeded"


async def test_a_decommission_that_cannot_read_the_queue_is_refused(cluster: Cluster) -> None:
    cluster.slurm.is_up = False
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, "it is unknown whether jobs run" in ended.error.message) == ("refused", True)
    assert cluster.status() == "running"
    forced = await cluster.perform("decommission", force=True)
    assert forced.status == "succeeded", forced.error
    assert {target.evidence.state for target in forced.targets} == {"unknown"}


async def test_a_decommission_that_meets_a_dead_node_after_its_check_reopens_the_partition(cluster: Cluster) -> None:
    cluster.slurm.nodes["gpu-2"] = ["DOWN", "NOT_RESPONDING"]
    ended = await cluster.perform("decommission")
    assert (ended.error.failure_class, "it is unknown whether jobs still run" in ended.error.message) == (
        "refused",
        True,
    )
    assert (cluster.slurm.partition_states, cluster.status()) == (["down", "up"], "running")


async def test_a_drain_shows_that_it_waits_for_slurmctld(cluster: Cluster) -> None:
    cluster.slurm.is_up = False
    operation_id = await cluster.started("drain", [cluster.member("gpu-2")])
    waiting = await cluster.platform.until(operation_id, lambda now: bool(now.steps))
    assert (waiting.steps[0].name, "slurmctld does not answer" in waiting.steps[0].message) == ("wait", True)


async def test_a_drain_does_not_end_while_the_machine_is_silent_that_slurm_still_shows_as_idle(
    cluster: Cluster,
) -> None:
    """Slurm notices a silent machine only after a minute, so what it shows may be older than the silence."""
    host = cluster.machines.host("gpu-2")
    host.reachable = False
    operation_id = await cluster.started("drain", [cluster.member("gpu-2")])
    waiting = await cluster.platform.until(
        operation_id, lambda now: any("machine gpu-2 (gpu-2) does not answer" in step.message for step in now.steps)
    )
    assert (waiting.status, cluster.member("gpu-2").status) == ("running", "draining")
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"], "no job starts there while the drain waits"
    host.reachable = True
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.member("gpu-2").status) == ("succeeded", "drained"), ended.error


async def test_a_machine_without_logins_is_drained_if_its_slurmd_responds_for_long_enough() -> None:
    now = [0.0]
    async with deployed_cluster(settings=dataclasses.replace(SETTINGS, clock=lambda: now[0])) as cluster:
        cluster.machines.host("gpu-2").reachable = False
        operation_id = await cluster.started("drain", [cluster.member("gpu-2")])
        await cluster.platform.until(
            operation_id, lambda shown: any("does not answer" in step.message for step in shown.steps)
        )
        now[0] = SETTINGS.slurm_notices_s + 1
        ended = await cluster.platform.ended(operation_id)
        assert (ended.status, cluster.member("gpu-2").status) == ("succeeded", "drained"), ended.error


async def test_a_drain_that_slurm_forgot_is_set_again(cluster: Cluster) -> None:
    cluster.slurm.drains_to_forget = 1
    ended = await cluster.perform("drain", [cluster.member("gpu-2")])
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.changes == ["drain gpu-2", "drain gpu-2"]
    assert cluster.member("gpu-2").status == "drained"


async def test_a_cancelled_drain_lifts_its_drain_and_the_worker_is_ready(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7)]
    operation_id = await cluster.started("drain", [cluster.member("gpu-2")])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    assert (cluster.member("gpu-2").status, cluster.slurm.nodes["gpu-2"]) == ("ready", ["IDLE"])
    assert "drained_by" not in cluster.member("gpu-2").adapter_detail


async def test_a_drain_by_another_user_stays_after_a_cancelled_drain(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7)]
    cluster.slurm.nodes["gpu-2"], cluster.slurm.reasons["gpu-2"] = ["DRAIN", "IDLE"], "bad DIMM"
    operation_id = await cluster.started("drain", [cluster.member("gpu-2")])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    assert (await cluster.platform.ended(operation_id)).status == "cancelled"
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"]
    assert cluster.slurm.reasons["gpu-2"] == "bad DIMM"


async def test_a_drain_states_that_the_drain_of_another_user_stays(cluster: Cluster) -> None:
    cluster.slurm.nodes["gpu-2"], cluster.slurm.reasons["gpu-2"] = ["DRAIN", "IDLE"], "bad DIMM"
    ended = await cluster.perform("drain", [cluster.member("gpu-2")])
    assert ended.status == "succeeded", ended.error
    assert "keep the drain of another user" in [step.name for step in ended.steps]
    assert "bad DIMM. That drain and its reason stay" in cluster.member("gpu-2").status_reason
    assert cluster.slurm.reasons["gpu-2"] == "bad DIMM"


async def test_the_preview_of_a_drain_names_the_drain_of_another_user(cluster: Cluster) -> None:
    cluster.slurm.nodes["gpu-2"], cluster.slurm.reasons["gpu-2"] = ["DRAIN", "IDLE"], "bad DIMM"
    asked = cluster.platform.ask_preview(cluster.instance, "drain", [cluster.member("gpu-2")], component_key="worker")
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert "bad DIMM. That drain and its reason stay" in preview.notes[-1]


async def test_a_resume_of_a_foreign_drain_is_refused_and_the_worker_stays_drained(cluster: Cluster) -> None:
    await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.reasons["gpu-2"] = "bad DIMM"
    ended = await cluster.perform("resume", [cluster.member("gpu-2")])
    assert (ended.error.failure_class, "bad DIMM" in ended.error.message) == ("refused", True)
    assert ended.error.fix.endswith("gpuaas ssh gpu-2 --root -- sudo scontrol update nodename=gpu-2 state=resume")
    assert cluster.member("gpu-2").status == "drained"


async def test_a_cancelled_resume_drains_the_node_again(cluster: Cluster) -> None:
    await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE", "UNKNOWN"]
    operation_id = await cluster.started("resume", [cluster.member("gpu-2")])
    await cluster.platform.until(operation_id, lambda now: any(step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"]
    assert cluster.member("gpu-2").status in ("draining", "drained")


async def test_a_cancelled_resume_leaves_no_member_drained_whose_node_took_a_job(cluster: Cluster) -> None:
    await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE", "UNKNOWN"]
    operation_id = await cluster.started("resume", [cluster.member("gpu-2")])
    await cluster.platform.until(operation_id, lambda now: any(step.message for step in now.steps))
    cluster.slurm.jobs.append(FakeJob(17))
    cluster.slurm.nodes["gpu-2"] = ["ALLOCATED"]
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    assert ("DRAIN" in cluster.slurm.nodes["gpu-2"], cluster.member("gpu-2").status) == (True, "draining")


async def test_a_removed_worker_shows_evidence_of_its_last_look_and_no_daemon(cluster: Cluster) -> None:
    _two_workers(cluster)
    requested_at = cluster.platform.records.clock()
    ended = await cluster.perform("remove", [cluster.member("gpu-3")])
    assert ended.status == "succeeded", ended.error
    evidence = ended.targets[0].evidence
    assert (evidence.state, evidence.running_work) == ("idle", 0)
    assert requested_at <= evidence.observed_at <= cluster.platform.records.clock()
    assert not {"slurm_state", "daemon_version"} & set(cluster.member("gpu-3").adapter_detail)
    # A slurmd that still runs would register its node again after the delete.
    assert cluster.slurm.changes == ["drain gpu-3", "stop slurmd", "delete gpu-3"]


async def test_a_remove_is_refused_while_queued_jobs_name_the_node(cluster: Cluster) -> None:
    _two_workers(cluster)
    cluster.slurm.jobs = [FakeJob(11, node="", required="gpu-[3-4]"), FakeJob(12, node="", required="gpu-2")]
    ended = await cluster.perform("remove", [cluster.member("gpu-3")])
    assert (ended.error.failure_class, "11 (ada)" in ended.error.message, "12" in ended.error.message) == (
        "refused",
        True,
        False,
    )
    assert (cluster.member("gpu-3").status, cluster.slurm.changes) == ("ready", [])
    forced = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
    assert forced.status == "succeeded", forced.error


async def test_a_remove_from_a_machine_that_does_not_answer_is_refused(cluster: Cluster) -> None:
    _two_workers(cluster)
    cluster.machines.host("gpu-3").reachable = False
    ended = await cluster.perform("remove", [cluster.member("gpu-3")])
    assert (ended.error.failure_class, "force" in ended.error.fix) == ("refused", True)
    assert cluster.member("gpu-3").status == "ready"


@pytest.mark.parametrize(
    "fault",
    [
        "slurmd",
        "machine",
        "frozen machine",
        "slurmctld",
        "everything",
        "forgotten node",
        "running job",
        "failed member",
    ],
)
async def test_a_forced_remove_succeeds_and_reports_what_it_did_not_do(cluster: Cluster, fault: str) -> None:
    _two_workers(cluster)
    left = _break(cluster, fault)
    ended = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
    assert ended.status == "succeeded", ended.error
    removed = cluster.member("gpu-3")
    is_silent = not cluster.machines.host("gpu-3").reachable
    assert removed.status == ("tombstoned" if is_silent else "removed"), "Slurm is still on a machine that is silent"
    assert left in removed.status_reason if left else removed.status_reason == ""
    if fault in ("machine", "frozen machine"):
        assert (cluster.slurm.nodes["gpu-3"], cluster.slurm.jobs) == (["DOWN", "DRAIN"], [])
    elif fault not in ("slurmctld", "everything"):
        assert ("gpu-3" in cluster.slurm.nodes, cluster.slurm.jobs) == (False, [])


async def test_a_forced_remove_ends_slurmd_and_its_steps_before_the_node_is_deleted(cluster: Cluster) -> None:
    _two_workers(cluster)
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3")]
    ended = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
    assert ended.status == "succeeded", ended.error
    # A slurmd that still runs would register its node again, and a step that still runs keeps the GPUs.
    assert cluster.slurm.changes == ["drain gpu-3", "stop slurmd", "end steps", "down gpu-3", "delete gpu-3"]


@pytest.mark.parametrize("force", [False, True])
async def test_a_node_is_not_deleted_while_its_slurmd_still_runs(cluster: Cluster, *, force: bool) -> None:
    _two_workers(cluster)
    cluster.slurm.slurmd_stays = 1
    ended = await cluster.perform("remove", [cluster.member("gpu-3")], force=force)
    assert ended.status == "succeeded", ended.error
    changes = [change for change in cluster.slurm.changes if change.startswith(("stop", "delete"))]
    assert changes == ["stop slurmd", "stop slurmd", "delete gpu-3"]


async def test_a_machine_that_was_given_up_gets_no_job_when_its_power_returns(cluster: Cluster) -> None:
    _two_workers(cluster)
    _break(cluster, "machine")
    ended = await cluster.perform("remove", [cluster.member("gpu-3")], force=True)
    assert ended.status == "succeeded", ended.error
    cluster.slurm.register("gpu-3")
    assert (cluster.slurm.nodes["gpu-3"], cluster.slurm.reasons["gpu-3"]) == (
        ["DRAIN", "IDLE"],
        f"gpuaas:{ended.operation_id}: machine given up",
    )


def _break(cluster: Cluster, fault: str) -> str:
    """Break something, and return what a forced remove then cannot do."""
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3")]
    match fault:
        case "slurmd":
            cluster.slurm.nodes["gpu-3"] = ["DOWN", "NOT_RESPONDING"]
        case "machine":
            cluster.machines.host("gpu-3").reachable = False
            cluster.slurm.nodes["gpu-3"] = ["DOWN", "NOT_RESPONDING"]
            return "Slurm (worker) was not removed"
        case "frozen machine":  # Slurm has not noticed it yet.
            cluster.machines.host("gpu-3").reachable = False
            cluster.slurm.nodes["gpu-3"] = ["ALLOCATED"]
            return "Slurm (worker) was not removed"
        case "failed member":
            cluster.platform.records.change_member(cluster.member("gpu-3"), status="failed")
        case "everything":
            cluster.slurm.is_up = False
            cluster.machines.host("gpu-3").reachable = False
            return "node gpu-3 is still in Slurm, and its jobs were not cancelled; Slurm (worker) was not removed"
        case "slurmctld":
            cluster.slurm.is_up = False
            return "node gpu-3 is still in Slurm"
        case "forgotten node":
            cluster.slurm.jobs = []
            del cluster.slurm.nodes["gpu-3"]
    return ""


async def test_a_cancelled_remove_lifts_its_drain(cluster: Cluster) -> None:
    _two_workers(cluster)
    cluster.slurm.jobs = [FakeJob(7, node="gpu-3")]
    operation_id = await cluster.started("remove", [cluster.member("gpu-3")])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.platform.cancel(operation_id)
    assert (await cluster.platform.ended(operation_id)).status == "cancelled"
    assert (cluster.member("gpu-3").status, cluster.slurm.nodes["gpu-3"]) == ("ready", ["IDLE"])


async def test_a_remove_that_is_cancelled_after_its_point_of_no_return_is_finished(cluster: Cluster) -> None:
    _two_workers(cluster)
    deleted = asyncio.Event()
    cluster.slurm.on_delete = deleted.set
    operation_id = await cluster.started("remove", [cluster.member("gpu-3")])
    await deleted.wait()
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.member("gpu-3").status) == ("succeeded", "removed"), ended.error
    assert [taken.too_late for taken in ended.exits_taken] == [True]


async def test_a_member_whose_removal_failed_names_the_removal_until_a_retry_has_finished_it(cluster: Cluster) -> None:
    receipt = receipts.Receipt(cluster.instance.instance_id, ["worker"], [], [], [], [], [], [])
    path = receipts.path_of(SLURM, cluster.instance.instance_id)
    cluster.machines.host("gpu-2").files[path] = msgspec.json.encode(receipt)
    cluster.add_worker("gpu-3")
    cluster.slurm.uninstall_fails = True
    ended = await cluster.perform("remove", [cluster.member("gpu-2")])
    failed = cluster.member("gpu-2")
    assert (ended.status, failed.status) == ("failed", "failed")
    assert failed.adapter_detail["removal"] == ended.operation_id
    cluster.slurm.uninstall_fails = False
    cluster.platform.retry(ended.operation_id)
    assert (await cluster.platform.ended(ended.operation_id)).status == "succeeded"
    assert "removal" not in cluster.member("gpu-2").adapter_detail


async def test_an_add_waits_for_slurmctld(cluster: Cluster) -> None:
    cluster.slurm.is_up = False
    member = cluster.add_worker("gpu-3")
    operation_id = await cluster.started("add", [member])
    await cluster.platform.until(operation_id, lambda now: any("does not answer" in step.message for step in now.steps))
    cluster.slurm.is_up, cluster.slurm.nodes["gpu-3"] = True, ["IDLE"]
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "succeeded", ended.error


async def test_a_retried_add_runs_the_first_job_of_each_worker_that_has_not_proved_itself(cluster: Cluster) -> None:
    cluster.slurm.first_job_answers = False
    ended = await _add_two(cluster, busy={"gpu-3"})
    assert cluster.statuses()["gpu-4"] == "failed"
    cluster.slurm.first_job_answers = True
    cluster.platform.retry(ended.operation_id)
    again = await cluster.platform.ended(ended.operation_id)
    assert again.status == "succeeded", again.error
    assert cluster.slurm.first_jobs_on == ["gpu-4"]


async def test_a_cancelled_add_takes_slurm_off_the_machine_again(cluster: Cluster) -> None:
    member = cluster.add_worker("gpu-3")
    operation_id = await cluster.started("add", [member])
    await cluster.platform.until(operation_id, lambda now: any("join" in step.name for step in now.steps))
    cluster.platform.cancel(operation_id)
    ended = await cluster.platform.ended(operation_id)
    assert ended.status == "cancelled", ended.error
    assert cluster.member("gpu-3").status == "removed"


async def test_an_undo_that_is_interrupted_after_a_member_left_is_repeated_without_that_member(
    cluster: Cluster,
) -> None:
    head = cluster.machines.host("gpu-1")
    cluster.slurm.on_uninstall = lambda: setattr(head, "reachable", False)
    operation_id = await cluster.started("add", [cluster.add_worker("gpu-3")])
    await cluster.platform.until(operation_id, lambda now: any("join" in step.name for step in now.steps))
    cluster.platform.cancel(operation_id)
    await cluster.platform.until(
        operation_id, lambda now: any("cannot be reached" in step.message for step in now.steps)
    )
    head.reachable = True
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, ended.error) == ("cancelled", None)
    assert cluster.member("gpu-3").status == "removed"


async def test_a_machine_of_another_instance_is_refused_and_one_that_it_left_is_taken_over(cluster: Cluster) -> None:
    other = cluster.platform.add_instance({"worker": ["gpu-3"]}, name="other", ready=True)
    cluster.slurm.receipts = [f"/var/lib/gpuaas-app/slurm/{other.instance_id}.json"]
    cluster.slurm.nodes["gpu-3"] = ["IDLE"]
    member = cluster.add_worker("gpu-3")
    ended = await cluster.perform("add", [member])
    assert (ended.error.failure_class, "belongs to another" in ended.error.message) == ("refused", True)
    assert cluster.member_of(cluster.instance, "gpu-3").status == "requested"
    left = cluster.platform.members(other)[0]
    cluster.platform.records.change_member(left, status="tombstoned")
    cluster.platform.retry(ended.operation_id)
    again = await cluster.platform.ended(ended.operation_id)
    assert again.status == "succeeded", again.error


@pytest.mark.parametrize("drained", [False, True], ids=["open", "drained"])
async def test_a_repaired_worker_restarts_a_stopped_slurmd_and_stays_drained_if_it_was(
    cluster: Cluster, drained: bool
) -> None:
    cluster.machines.host("gpu-1").files[keys.SLURM_KEY] = b"key"
    if drained:
        await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.stopped_units = {"slurmd"}
    ended = await cluster.perform("repair", [cluster.member("gpu-2")])
    assert ended.status == "succeeded", ended.error
    assert cluster.member("gpu-2").status == ("drained" if drained else "ready")
    assert ("DRAIN" in cluster.slurm.nodes["gpu-2"]) is drained
    assert cluster.slurm.stopped_units == set()


async def test_a_member_whose_removal_has_begun_is_not_repaired_and_the_fix_removes_it(cluster: Cluster) -> None:
    _two_workers(cluster)
    half_removed = {"node_name": "gpu-3", removals.BEGUN_BY: "op_1"}
    cluster.platform.records.change_member(cluster.member("gpu-3"), status="failed", adapter_detail=half_removed)
    repair = await cluster.perform("repair", [cluster.member("gpu-3")])
    assert (repair.status, repair.error.failure_class, repair.targets[0].outcome) == ("failed", "refused", "refused")
    assert "gpuaas member remove" in repair.error.message + repair.error.fix + repair.targets[0].error
    assert cluster.member("gpu-3").status == "failed"
    again = await cluster.perform("remove", [cluster.member("gpu-3")])
    assert (again.status, cluster.member("gpu-3").status) == ("succeeded", "removed")


async def test_a_machine_that_stops_answering_during_its_repair_has_the_fault_that_a_look_would_find(
    cluster: Cluster,
) -> None:
    cluster.machines.host("gpu-2").reachable = False
    ended = await cluster.perform("repair", [cluster.member("gpu-2")])
    assert ended.status == "failed"
    assert cluster.member("gpu-2").status_reason.startswith("MachineSilent: machine gpu-2")
    assert cluster.member("gpu-2").status_reason.endswith("gpuaas ssh gpu-2 -- uptime")


async def test_a_repaired_controller_gives_people_who_joined_their_place_and_takes_it_from_those_who_left(
    cluster: Cluster,
) -> None:
    cluster.platform.records.people += [_person("ada", 20001, "active"), _person("bob", 20002, "left")]
    cluster.slurm.accounting.users |= {"bob": {}}
    controller = cluster.member_of(cluster.instance, "gpu-1")
    ended = await cluster.perform("repair", [controller])
    assert ended.status == "succeeded", ended.error
    assert cluster.slurm.accounting.users["ada"] == {}
    assert cluster.slurm.accounting.users["bob"]["GrpSubmitJobs"] == "0"


async def test_the_preview_of_a_remove_names_jobs_owners_ends_and_gpu_hours(cluster: Cluster) -> None:
    _two_workers(cluster)
    now = int(cluster.platform.records.clock().timestamp())
    cluster.slurm.jobs = [
        FakeJob(7, node="gpu-3", user="ada", started_at=now - 7200, ends_at=now + 600, gpus=2),
        FakeJob(8, node="gpu-2", user="bob"),
        FakeJob(9, node="", required="gpu-3"),
    ]
    member = cluster.member("gpu-3")
    asked = cluster.platform.ask_preview(cluster.instance, "remove", [member], component_key="worker")
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert [(work.work_id, work.owner, work.member_ids) for work in preview.running_work] == [
        ("7", "ada", [member.member_id])
    ]
    assert preview.gpu_hours_at_stake == pytest.approx(4, abs=0.1)
    assert preview.done_by is not None
    assert int(preview.done_by.timestamp()) == now + 600
    assert any("9" in note for note in preview.notes)
    assert preview.irreversible


async def test_the_preview_of_a_decommission_counts_every_job(cluster: Cluster) -> None:
    cluster.slurm.jobs = [FakeJob(7), FakeJob(9, node="", required="gpu-2")]
    asked = cluster.platform.ask_preview(cluster.instance, "decommission")
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert [work.work_id for work in preview.running_work] == ["7", "9"]
    assert any("refused" in note for note in preview.notes)


@pytest.mark.parametrize("kind", ["remove", "decommission"])
async def test_a_preview_lists_homes_as_deleted_only_if_they_are_local(cluster: Cluster, kind: Any) -> None:
    targets, role = ([cluster.member("gpu-2")], "worker") if kind == "remove" else (None, "")

    async def deleted() -> str:
        asked = cluster.platform.ask_preview(cluster.instance, kind, targets, component_key=role)
        preview = (await cluster.platform.ended(asked.operation_id)).preview
        assert preview is not None
        return preview.irreversible[-1]

    assert "home folders of its users on gpu-" in await deleted()
    shared = home.unit_text(home.Home("shared", "/data/home"), on_controller=True)
    cluster.machines.host("gpu-1").files[home.UNIT_PATH] = shared.encode()
    assert "are deleted. Home folders on /data/home stay." in await deleted()


async def test_a_preview_states_at_once_that_slurmctld_does_not_answer(cluster: Cluster) -> None:
    cluster.slurm.is_up = False
    asked = cluster.platform.ask_preview(cluster.instance, "decommission")
    preview = (await cluster.platform.ended(asked.operation_id)).preview
    assert preview is not None
    assert (preview.answered, "slurmctld does not answer" in preview.notes[0]) == (False, True)


def _two_workers(cluster: Cluster) -> None:
    cluster.add_worker("gpu-3")
    cluster.platform.records.make_ready(cluster.platform.records.instances[cluster.instance.instance_id])
    cluster.slurm.nodes["gpu-3"] = ["IDLE"]


async def _add_two(cluster: Cluster, *, busy: set[str]) -> Any:
    targets = [cluster.add_worker(name) for name in ("gpu-3", "gpu-4")]
    names = ("gpu-2", "gpu-3", "gpu-4")
    cluster.slurm.nodes = {name: ["ALLOCATED" if name in busy else "IDLE"] for name in names}
    cluster.slurm.jobs = [FakeJob(number, name) for number, name in enumerate(sorted(busy), start=40)]
    return await cluster.perform("add", targets)


def _person(login: str, uid: int, state: PersonState) -> PosixPerson:
    return PosixPerson(
        user_id=f"user_{login}", name=login, login=login, uid=uid, gid=uid, state=state, is_admin=False, public_keys=[]
    )
