"""From machines to jobs and back through the public API with a service account.

Deploy (the platform is killed during it), change settings under a running job and change them back, add a worker (the
app's controller is killed during it), drain under a running job, remove, decommission; then a deploy that fails because
a machine is cut off. Each test brings the cluster to the stage it needs, so it can run alone; in this order no stage is
reached twice."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import machine_state
import pytest
from gpuaas_contract import operations
from local_cloud import LAB, NODES, LocalCloud, Project, running_step
from slurm_cluster import ADDED, NAME, WORKERS, Cluster, Stage

pytestmark = pytest.mark.machines


@pytest.fixture
async def project(cloud: LocalCloud) -> AsyncIterator[Project]:
    async with cloud.client() as client:
        yield await Project.of(client)


@pytest.fixture
def cluster(project: Project) -> Cluster:
    return Cluster(project)


@pytest.fixture(scope="module")
def before(cloud: LocalCloud) -> dict[str, dict[str, Any]]:
    """The machines without the app."""

    async def remove_app() -> None:
        async with cloud.client() as client:
            await Cluster(await Project.of(client)).reach(Stage.NONE)

    asyncio.run(remove_app())
    return {name: machine_state.capture(LAB, name) for name in [*WORKERS, ADDED]}


@pytest.mark.usefixtures("before")
async def test_a_deploy_survives_kill_9_of_the_platform(cloud: LocalCloud, project: Project, cluster: Cluster) -> None:
    await cluster.reach(Stage.NONE)
    deploy = await cluster.deploy()
    await project.until(deploy.operation_id, running_step("install packages"))
    cloud.kill("server")
    await asyncio.to_thread(cloud.up, NODES)
    ended = await project.ended(deploy.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    members = await cluster.members()
    assert sorted((member.component_key, member.node_name) for member in members) == [
        ("controller", "gpu-1"),
        *(("worker", name) for name in WORKERS),
    ]
    assert {member.status for member in members} == {"ready"}
    assert _nothing_doubled(ended)
    assert _slurm_nodes(cloud) == WORKERS


@pytest.mark.usefixtures("before")
async def test_a_normal_user_runs_a_job_on_all_three_machines(cloud: LocalCloud, cluster: Cluster) -> None:
    await cluster.reach(Stage.DEPLOYED)
    output = await _as_user(cloud, "timeout 60 srun -N3 hostname")
    assert sorted(output.split()) == WORKERS


@pytest.mark.usefixtures("before")
async def test_a_users_first_batch_job_is_accepted_and_ends(cloud: LocalCloud, cluster: Cluster) -> None:
    await cluster.reach(Stage.DEPLOYED)
    job_id = (await _as_user(cloud, "sbatch --parsable --wrap true")).strip()
    await _wait_for_job(cloud, job_id, "COMPLETED")


SHORT = {"name": "short", "default_time": "00:10:00", "max_time": "01:00:00", "priority_tier": 10}


@pytest.mark.usefixtures("before")
async def test_settings_are_changed_under_a_running_job_and_changed_back(
    cloud: LocalCloud, project: Project, cluster: Cluster
) -> None:
    await cluster.reach(Stage.DEPLOYED)
    job_id = (await _as_user(cloud, "sbatch --parsable --mem=16 --wrap 'sleep 600'")).strip()
    await _wait_for_job(cloud, job_id, "RUNNING")
    change = ("--set", "default_time=02:00:00", "--set", f"partitions={json.dumps([SHORT])}")
    shown = (await asyncio.to_thread(cloud.gpuaas, "reconfigure", NAME, *change, "--dry-run")).stdout
    assert "partition short" in shown
    assert "02:00:00" in shown
    await asyncio.to_thread(cloud.gpuaas, "reconfigure", NAME, *change, "--reason", "long trainings")
    assert await _limits(cloud) == {"main": "02:00:00", "short": "00:10:00"}
    await _wait_for_job(
        cloud, (await _as_user(cloud, "sbatch --parsable --mem=16 -p short --wrap true")).strip(), "COMPLETED"
    )
    await _repair_controller(project, cluster)
    assert await _limits(cloud) == {"main": "02:00:00", "short": "00:10:00"}, "a repair keeps the new settings"
    await asyncio.to_thread(cloud.gpuaas, "reconfigure", NAME, "--previous", "--reason", "as before")
    assert await _limits(cloud) == {"main": "1-00:00:00"}
    await _wait_for_job(cloud, job_id, "RUNNING")
    await _as_user(cloud, f"scancel {job_id}")
    await _wait_for_job(cloud, job_id, "CANCELLED")


async def _limits(cloud: LocalCloud) -> dict[str, str]:
    """Return the default time limit of each partition, as Slurm shows it."""
    lines = (await _as_user(cloud, "scontrol -o show partition")).splitlines()
    partitions = [dict(word.split("=", 1) for word in line.split()) for line in lines if line]
    return {partition["PartitionName"]: partition["DefaultTime"] for partition in partitions}


async def _repair_controller(project: Project, cluster: Cluster) -> None:
    member = next(member for member in await cluster.members() if member.component_key == "controller")
    repair = await project.operate(await cluster.instance_id(), kind="repair", member_ids=[member.member_id])
    ended = await project.ended(repair.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)


@pytest.mark.usefixtures("before")
async def test_an_add_survives_kill_9_of_the_apps_controller(
    cloud: LocalCloud, project: Project, cluster: Cluster
) -> None:
    await cluster.reach(Stage.DEPLOYED)
    added = await cluster.add_worker()
    await project.until(added.operation_id, running_step("install packages"))
    cloud.kill("controller")
    await asyncio.to_thread(cloud.up, NODES)
    ended = await project.ended(added.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    assert ended.attempts == 2
    assert _nothing_doubled(ended)
    assert _slurm_nodes(cloud) == [*WORKERS, ADDED]
    assert [member.node_name for member in await cluster.workers()].count(ADDED) == 1


@pytest.mark.usefixtures("before")
async def test_a_drain_waits_for_the_running_job(cloud: LocalCloud, project: Project, cluster: Cluster) -> None:
    await cluster.reach(Stage.ADDED)
    script = "until test -e /tmp/continue; do sleep 0.2; done"
    job_id = (await _as_user(cloud, f"sbatch --parsable -w {ADDED} --wrap '{script}'")).strip()
    await _wait_for_job(cloud, job_id, "RUNNING")
    drain = await cluster.drain_added()
    waiting = await project.until(drain.operation_id, lambda seen: any(job_id in step.message for step in seen.steps))
    assert waiting.status == "running"
    cloud.lab("exec", ADDED, "--", "touch", "/tmp/continue")
    ended = await project.ended(drain.operation_id)
    assert ended.status == "succeeded"
    await _wait_for_job(cloud, job_id, "COMPLETED")
    statuses = {member.node_name: member.status for member in await cluster.workers()}
    assert statuses == {**dict.fromkeys(WORKERS, "ready"), ADDED: "drained"}
    cloud.lab("exec", ADDED, "--", "rm", "/tmp/continue")


async def test_a_removed_worker_leaves_its_machine_as_it_was(
    cloud: LocalCloud, project: Project, cluster: Cluster, before: dict[str, dict[str, Any]]
) -> None:
    await cluster.reach(Stage.DRAINED)
    removal = await cluster.remove_added()
    ended = await project.ended(removal.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    evidence = ended.targets[0].evidence
    assert evidence is not None
    assert evidence.state == "idle"
    assert _slurm_nodes(cloud) == WORKERS
    assert machine_state.traces(LAB, ADDED, before[ADDED]) == []


async def test_a_decommission_leaves_every_machine_as_it_was(
    project: Project, cluster: Cluster, before: dict[str, dict[str, Any]]
) -> None:
    await cluster.reach(Stage.DEPLOYED)
    operation = await cluster.decommission()
    ended = await project.ended(operation.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    assert {name: machine_state.traces(LAB, name, before[name]) for name in WORKERS} == {name: [] for name in WORKERS}
    allocations = await project.allocations()
    assert sorted(allocations) == [*WORKERS, ADDED]
    assert not any(allocation.used_by_instance_ids for allocation in allocations.values())


async def test_a_failed_deploy_is_described_completely_and_can_be_decommissioned(
    cloud: LocalCloud, cluster: Cluster, before: dict[str, dict[str, Any]]
) -> None:
    await cluster.reach(Stage.NONE)
    await asyncio.to_thread(_fail_and_decommission, cloud)
    assert machine_state.traces(LAB, "gpu-1", before["gpu-1"]) == []


def _fail_and_decommission(cloud: LocalCloud) -> None:
    cloud.lab("cut", "gpu-2")
    try:
        settings = ["--set", "cluster_name=doomed", "--set", "controller_allocation_id=gpu-1"]
        settings += ["--set", "worker_allocation_ids=gpu-1,gpu-2"]
        failed = cloud.gpuaas("deploy", "slurm", "--name", "doomed", "--topology", "split", *settings, check=False)
        assert failed.returncode == 1
        instance = json.loads(cloud.gpuaas("get", "instance", "doomed", "-o", "json").stdout)
        assert instance["status"] == "failed"
        operation_id = instance["last_operation_id"]
        operation = json.loads(cloud.gpuaas("get", "operation", operation_id, "-o", "json").stdout)
        described = cloud.gpuaas("describe", "operation", operation_id).stdout
        members = json.loads(cloud.gpuaas("get", "members", "--instance", "doomed", "-o", "json").stdout)["items"]
        lost = next(member for member in members if member["node_name"] == "gpu-2")
        assert lost["status"] == "failed"
        assert lost["adapter_detail"]["machine"]
        words = [instance["instance_id"], lost["member_id"], operation_id, operation["correlation_id"], "gpu-2"]
        assert [word for word in words if word not in described] == []
        cloud.gpuaas("decommission", "doomed", "--yes", "--reason", "it failed")
        gone = json.loads(cloud.gpuaas("get", "instance", instance["instance_id"], "-o", "json").stdout)
        assert gone["status"] == "deleted"
    finally:
        cloud.lab("heal", "gpu-2")


async def _as_user(cloud: LocalCloud, line: str) -> str:
    """Run what a user types on the login machine, entered with a certificate of the platform; return its output."""
    words = ["ssh", "gpu-1", "--root", "--", "sudo", "-n", "-i", "-u", "researcher", "bash", "-lc", line]
    return (await asyncio.to_thread(cloud.gpuaas, *words)).stdout


def _slurm_nodes(cloud: LocalCloud) -> list[str]:
    output = cloud.gpuaas("ssh", "gpu-1", "--root", "--", "sudo", "-n", "sinfo", "-h", "-N", "-o", "%N").stdout
    return sorted(output.split())


async def _wait_for_job(cloud: LocalCloud, job_id: str, state: str) -> None:
    line = f"until scontrol -o show job {job_id} | grep -q JobState={state}; do sleep 0.2; done"
    try:
        await _as_user(cloud, f"timeout 60 bash -c '{line}'")
    except AssertionError:
        output = await _as_user(cloud, f"scontrol show job {job_id}")
        pytest.fail(f"job {job_id} did not become {state}:\n{output}")


def _nothing_doubled(operation: operations.Operation) -> bool:
    keys = [(step.name, step.member_id) for step in operation.steps]
    return len(keys) == len(set(keys)) and all(step.state == "succeeded" for step in operation.steps)
