"""A machine joins again in another role: the record of its node that Slurm keeps must not be that of the old role."""

import contextlib
from collections.abc import AsyncIterator

import pytest
from gpuaas_app_slurm.workload import state
from gpuaas_app_slurm_conformance.fake_slurm import FakeJob
from gpuaas_app_slurm_conformance.fresh_machines import QUICK, NewCluster, new_cluster
from gpuaas_sdk.controller import Member

MEMBERS = {"controller": ["gpu-1"], "worker": ["gpu-2", "gpu-3"], "login": ["gpu-4"]}


@pytest.mark.parametrize(
    ("features", "role", "has_role"),
    [
        (("worker", "big"), "worker", True),
        (("worker",), "login", False),
        ((), "worker", True),
        (("big",), "worker", True),
    ],
)
def test_a_record_has_another_role_only_if_it_has_the_feature_of_that_role(
    features: tuple[str, ...], role: str, has_role: bool
) -> None:
    assert state.has_role(state.Node("gpu-2", frozenset({"IDLE"}), features=features), role) is has_role


@pytest.mark.parametrize(("name", "role"), [("gpu-2", "login"), ("gpu-4", "worker")])
async def test_a_machine_whose_member_was_declared_removed_joins_in_another_role(name: str, role: str) -> None:
    async with deployed() as cluster:
        again = declared_removed(cluster, name, role)
        ended = await cluster.perform("add", [again])
        assert ended.status == "succeeded", ended.error
        assert cluster.slurm.queue.features[name] == [role]
        cluster.host(name).active.discard("slurmd")
        repaired = await cluster.perform("repair", [again])
        assert (repaired.status, cluster.slurm.nodes[name]) == ("succeeded", ["IDLE"]), repaired.error


async def test_a_machine_keeps_its_record_and_its_jobs_until_they_end() -> None:
    async with deployed() as cluster:
        cluster.slurm.jobs.append(FakeJob(7, node="gpu-2"))
        ended = await cluster.perform("add", [declared_removed(cluster, "gpu-2", "login")])
        assert (ended.status, "1 job still runs on gpu-2" in ended.error.message) == ("failed", True), ended.error
        assert ([job.job_id for job in cluster.slurm.jobs], cluster.slurm.queue.features["gpu-2"]) == ([7], ["worker"])


async def test_a_repair_deletes_the_record_of_another_role() -> None:
    async with deployed() as cluster:
        cluster.slurm.queue.features["gpu-4"], cluster.slurm.nodes["gpu-4"] = (
            ["worker"],
            ["DRAIN", "IDLE", "INVALID_REG"],
        )
        repaired = await cluster.perform("repair", [cluster.member_of(cluster.instance, "gpu-4")])
        assert repaired.status == "succeeded", repaired.error
        assert (cluster.slurm.queue.features["gpu-4"], cluster.slurm.nodes["gpu-4"]) == (["login"], ["IDLE"])


@contextlib.asynccontextmanager
async def deployed() -> AsyncIterator[NewCluster]:
    async with new_cluster(MEMBERS, settings=QUICK) as cluster:
        ended = await cluster.perform("deploy")
        assert ended.status == "succeeded", ended.error
        yield cluster


def declared_removed(cluster: NewCluster, name: str, role: str) -> Member:
    """Declare the member of a machine as removed, which changes nothing on it, and name the machine for a new one."""
    cluster.platform.records.change_member(cluster.member_of(cluster.instance, name), status="tombstoned")
    return cluster.platform.records.add_member(cluster.instance, role, name)
