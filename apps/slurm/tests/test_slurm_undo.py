"""What the app can undo, and that the undo of a failed operation leaves its member as it was. On the fake Slurm."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from gpuaas_app_slurm import controller
from gpuaas_app_slurm_conformance.fake_slurm import Cluster, FakeJob, deployed_cluster
from gpuaas_contract.protocol import request


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster("gpu-2", "gpu-3") as deployed:
        yield deployed


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("deploy", ""),
        ("add", "worker"),
        ("add", "login"),
        ("drain", "worker"),
        ("resume", "worker"),
        ("remove", "worker"),
        ("remove", "login"),
    ],
)
def test_the_app_can_undo_every_kind_that_has_a_way_back(kind: Any, role: str) -> None:
    assert request.can_undo(controller.app._handlers.undoes, kind, role)


@pytest.mark.parametrize(
    ("kind", "role"), [("decommission", ""), ("rollback", ""), ("repair", "worker"), ("repair", "controller")]
)
def test_the_app_does_not_offer_to_undo_what_it_cannot(kind: Any, role: str) -> None:
    assert not request.can_undo(controller.app._handlers.undoes, kind, role)


async def test_an_operation_shows_whether_the_app_can_undo_it(cluster: Cluster) -> None:
    assert (await cluster.perform("drain", [cluster.member("gpu-2")])).can_undo
    assert not (await cluster.perform("decommission")).can_undo


@pytest.mark.parametrize("kind", ["drain", "remove"])
async def test_a_failed_operation_that_drained_a_node_is_undone_and_its_worker_takes_jobs_again(
    cluster: Cluster, kind: str
) -> None:
    failed = await _fails_while_it_waits_for_a_job(cluster, kind)
    assert "DRAIN" in cluster.slurm.nodes["gpu-2"]
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE"]
    await _undo(cluster, failed)
    member = cluster.member("gpu-2")
    assert (member.status, cluster.slurm.nodes["gpu-2"], [job.job_id for job in cluster.slurm.jobs]) == (
        "ready",
        ["IDLE"],
        [7],
    )
    assert "drained_by" not in member.adapter_detail
    assert not any(change.startswith(("stop", "delete")) for change in cluster.slurm.changes)


@pytest.mark.parametrize("kind", ["drain", "remove"])
async def test_the_undo_of_a_failed_operation_keeps_the_drain_of_another_person(cluster: Cluster, kind: str) -> None:
    cluster.slurm.nodes["gpu-2"], cluster.slurm.reasons["gpu-2"] = ["DRAIN", "IDLE"], "bad fan"
    failed = await _fails_while_it_waits_for_a_job(cluster, kind)
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE"]
    await _undo(cluster, failed)
    assert (cluster.slurm.nodes["gpu-2"], cluster.slurm.reasons["gpu-2"]) == (["DRAIN", "IDLE"], "bad fan")


async def test_a_failed_resume_is_undone_and_its_worker_is_drained_as_before(cluster: Cluster) -> None:
    await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE", "UNKNOWN"]
    failed = await cluster.perform("resume", [cluster.member("gpu-2")])
    assert (failed.status, cluster.slurm.nodes["gpu-2"]) == ("failed", ["IDLE", "UNKNOWN"])
    cluster.slurm.nodes["gpu-2"] = ["IDLE"]
    await _undo(cluster, failed.operation_id)
    assert (cluster.member("gpu-2").status, cluster.slurm.nodes["gpu-2"]) == ("drained", ["DRAIN", "IDLE"])


async def test_the_undo_of_a_failed_resume_leaves_a_worker_draining_whose_node_took_a_job(cluster: Cluster) -> None:
    await cluster.perform("drain", [cluster.member("gpu-2")])
    cluster.slurm.nodes["gpu-2"] = ["DRAIN", "IDLE", "UNKNOWN"]
    failed = await cluster.perform("resume", [cluster.member("gpu-2")])
    cluster.slurm.nodes["gpu-2"], cluster.slurm.jobs = ["ALLOCATED"], [FakeJob(17)]
    await _undo(cluster, failed.operation_id)
    assert (cluster.member("gpu-2").status, "DRAIN" in cluster.slurm.nodes["gpu-2"]) == ("draining", True)


async def test_after_a_decommission_no_daemon_of_the_controller_is_shown_as_up(cluster: Cluster) -> None:
    controller_id = cluster.member_of(cluster.instance, "gpu-1").member_id
    await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-1")])
    up = {"slurmctld": "up", "slurmdbd": "up"}
    assert up.items() <= cluster.platform.records.members[controller_id].adapter_detail.items()
    assert (await cluster.perform("decommission")).status == "succeeded"
    gone = cluster.platform.records.members[controller_id]
    assert (gone.status, {*up, "daemon_version"} & gone.adapter_detail.keys()) == ("removed", set())


async def _fails_while_it_waits_for_a_job(cluster: Cluster, kind: str) -> str:
    """The node goes down, so nothing shows whether its job still runs. Return the id of the operation."""
    cluster.slurm.jobs = [FakeJob(7)]
    operation_id = await cluster.started(kind, [cluster.member("gpu-2")])
    await cluster.platform.until(operation_id, lambda now: any("7 (ada)" in step.message for step in now.steps))
    cluster.slurm.nodes["gpu-2"] = ["DOWN", "DRAIN"]
    failed = await cluster.platform.ended(operation_id)
    assert (failed.status, failed.can_undo) == ("failed", True)
    return operation_id


async def _undo(cluster: Cluster, operation_id: str) -> None:
    cluster.platform.compensate(operation_id)
    undone = await cluster.platform.ended(operation_id)
    assert (undone.status, undone.error) == ("cancelled", None)
