"""The app's handlers without machines: a fake platform, fake machines and a Slurm that answers from memory."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fake_slurm import Cluster, deployed_cluster


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
    cluster.slurm.jobs = [7]
    ended = await cluster.perform("decommission")
    assert (ended.status, "1 job running or queued: 7" in ended.error.message) == ("failed", True)
    assert cluster.slurm.partition_states == []
    assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready"}


async def test_a_job_that_starts_before_the_partition_is_closed_reopens_it_and_refuses_the_decommission(
    cluster: Cluster,
) -> None:
    cluster.slurm.jobs_at_close = [8]
    ended = await cluster.perform("decommission")
    assert (ended.status, "1 job running or queued: 8" in ended.error.message) == ("failed", True)
    assert cluster.slurm.partition_states == ["down", "up"]
    assert cluster.statuses() == {"gpu-1": "ready", "gpu-2": "ready"}


async def test_a_forced_decommission_cancels_jobs_after_the_partition_is_closed(cluster: Cluster) -> None:
    cluster.slurm.jobs, cluster.slurm.jobs_at_close = [7], [8]
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
async def test_a_first_job_that_does_not_run_fails_unless_every_new_worker_is_busy(
    cluster: Cluster, busy: set[str]
) -> None:
    cluster.slurm.first_job_answers = False
    ended = await _add_two(cluster, busy=busy)
    assert (ended.status, "the first job of researcher failed" in ended.error.message) == ("failed", True)
    assert "ready" not in {cluster.statuses()[name] for name in ("gpu-3", "gpu-4")}


async def _add_two(cluster: Cluster, *, busy: set[str]) -> Any:
    targets = [cluster.add_worker(name) for name in ("gpu-3", "gpu-4")]
    names = ("gpu-2", "gpu-3", "gpu-4")
    cluster.slurm.nodes = {name: ["ALLOCATED" if name in busy else "IDLE"] for name in names}
    return await cluster.perform("add", targets)
