"""What a removal is based on, on the fake Slurm: a look at this moment, and the time of that look."""

import datetime
from collections.abc import AsyncIterator

import pytest
from gpuaas_app_slurm_conformance.fake_slurm import Cluster, FakeJob, deployed_cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with deployed_cluster("gpu-2", "gpu-3") as deployed:
        yield deployed


async def test_a_job_that_appears_on_a_drained_node_keeps_its_worker_until_the_job_has_ended(cluster: Cluster) -> None:
    started: list[int] = []

    def start_one_job(name: str) -> None:
        if not started and cluster.member(name).status == "drained":
            started.append(7)
            cluster.slurm.jobs.append(FakeJob(7, node=name))

    cluster.slurm.on_jobs_read = start_one_job
    operation_id = await cluster.started("remove", [cluster.member("gpu-3")])
    waiting = await cluster.platform.until(
        operation_id, lambda now: bool(now.ended_at) or any("7 (ada)" in step.message for step in now.steps)
    )
    assert (waiting.status, cluster.member("gpu-3").status) == ("running", "drained")
    assert (cluster.slurm.changes, "DRAIN" in cluster.slurm.nodes["gpu-3"]) == (["drain gpu-3"], True)
    cluster.slurm.jobs.clear()
    ended = await cluster.platform.ended(operation_id)
    assert (ended.status, cluster.member("gpu-3").status) == ("succeeded", "removed"), ended.error
    assert cluster.slurm.changes == ["drain gpu-3", "stop slurmd", "delete gpu-3"]


@pytest.mark.parametrize("force", [False, True], ids=["after its jobs", "by force"])
async def test_evidence_has_the_time_at_which_slurm_was_asked(cluster: Cluster, *, force: bool) -> None:
    """Not the time of the report: work can begin between the two."""
    reads: list[datetime.datetime] = []

    def note(name: str) -> None:
        if cluster.member(name).status not in ("removing", "removed"):
            reads.append(datetime.datetime.now(datetime.UTC))

    cluster.slurm.on_jobs_read = note
    ended = await cluster.perform("remove", [cluster.member("gpu-3")], force=force)
    assert ended.status == "succeeded", ended.error
    *_, before, last = reads
    assert before <= ended.targets[0].evidence.observed_at <= last, "the last look, and not later than its answer"


async def test_evidence_of_a_decommission_has_the_time_at_which_slurm_was_asked(cluster: Cluster) -> None:
    reads: dict[str, datetime.datetime] = {}

    def note(name: str) -> None:
        reads.setdefault(name, datetime.datetime.now(datetime.UTC))

    cluster.slurm.on_jobs_read = note
    ended = await cluster.perform("decommission")
    assert ended.status == "succeeded", ended.error
    observed = {
        cluster.platform.records.members[target.member_id].node_name: target.evidence for target in ended.targets
    }
    assert {name for name, read_at in reads.items() if observed[name].observed_at <= read_at} == {"gpu-2", "gpu-3"}
