"""From machines to jobs and back through the public API with a service account: one story, told in order.

Deploy (the platform is killed in the middle), add a worker (the app's controller is killed in the middle), drain under
a running job, remove, decommission; then a deploy that fails because a machine is cut off."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import machine_state
import pytest
from gpuaas_contract import instances, operations
from local_cloud import LAB, NODES, LocalCloud, Project, running_step

pytestmark = pytest.mark.machines

WORKERS = ["gpu-1", "gpu-2", "gpu-3"]
ADDED = "gpu-4"
story: dict[str, Any] = {}


@pytest.fixture
async def project(cloud: LocalCloud) -> AsyncIterator[Project]:
    async with cloud.client() as client:
        yield await Project.of(client)


async def test_a_deploy_survives_kill_9_of_the_platform(cloud: LocalCloud, project: Project) -> None:
    allocations = await project.allocations()
    story["before"] = {name: machine_state.capture(LAB, name) for name in [*WORKERS, ADDED]}
    inputs = {
        "cluster_name": "e2e",
        "controller_allocation_id": allocations["gpu-1"].allocation_id,
        "worker_allocation_ids": [allocations[name].allocation_id for name in WORKERS],
    }
    body = instances.DeployInstance(name="e2e", app_slug="slurm", topology="split", inputs=inputs)
    deployed = await project.client.call(instances.INSTANCE_CREATE, body, project_id=project.project_id)
    story["instance_id"] = deployed.instance.instance_id
    await project.until(deployed.operation.operation_id, running_step("install packages"))
    cloud.kill("server")
    await asyncio.to_thread(cloud.up, NODES)
    ended = await project.ended(deployed.operation.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    members = await project.members(deployed.instance.instance_id)
    assert sorted((member.component_key, member.node_name) for member in members) == [
        ("controller", "gpu-1"),
        *(("worker", name) for name in WORKERS),
    ]
    assert {member.status for member in members} == {"ready"}
    assert _nothing_doubled(ended)
    assert _slurm_nodes(cloud) == WORKERS


def test_a_normal_user_runs_a_job_on_all_three_machines(cloud: LocalCloud) -> None:
    said = _as_user(cloud, "timeout 60 srun -N3 hostname")
    assert sorted(said.split()) == WORKERS


def test_a_users_first_batch_job_is_accepted_and_ends(cloud: LocalCloud) -> None:
    job_id = _as_user(cloud, "sbatch --parsable --wrap true").strip()
    _wait_for_job(cloud, job_id, "COMPLETED")


async def test_an_add_survives_kill_9_of_the_apps_controller(cloud: LocalCloud, project: Project) -> None:
    allocation = (await project.allocations())[ADDED]
    added = await project.operate(
        story["instance_id"], kind="add", component_key="worker", allocation_ids=[allocation.allocation_id]
    )
    await project.until(added.operation_id, running_step("install packages"))
    cloud.kill("controller")
    await asyncio.to_thread(cloud.up, NODES)
    ended = await project.ended(added.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    assert ended.attempts == 2
    assert _nothing_doubled(ended)
    assert _slurm_nodes(cloud) == [*WORKERS, ADDED]
    assert [member.node_name for member in await project.members(story["instance_id"])].count(ADDED) == 1


async def test_a_drain_waits_for_the_running_job(cloud: LocalCloud, project: Project) -> None:
    job_id = _as_user(
        cloud, f"sbatch --parsable -w {ADDED} --wrap 'until test -e /tmp/go-on; do sleep 0.2; done'"
    ).strip()
    _wait_for_job(cloud, job_id, "RUNNING")
    member = next(found for found in await project.members(story["instance_id"]) if found.node_name == ADDED)
    story["member_id"] = member.member_id
    drain = await project.operate(
        story["instance_id"], kind="drain", member_ids=[member.member_id], reason="maintenance"
    )
    waiting = await project.until(drain.operation_id, lambda seen: any(job_id in step.message for step in seen.steps))
    assert waiting.status == "running"
    cloud.lab("exec", ADDED, "--", "touch", "/tmp/go-on")
    ended = await project.ended(drain.operation_id)
    assert ended.status == "succeeded"
    _wait_for_job(cloud, job_id, "COMPLETED")
    members = {
        found.node_name: found.status
        for found in await project.members(story["instance_id"])
        if found.component_key == "worker"
    }
    assert members == {**dict.fromkeys(WORKERS, "ready"), ADDED: "drained"}
    cloud.lab("exec", ADDED, "--", "rm", "/tmp/go-on")


async def test_a_removed_worker_leaves_its_machine_as_it_was(cloud: LocalCloud, project: Project) -> None:
    removal = await project.operate(story["instance_id"], kind="remove", member_ids=[story["member_id"]])
    ended = await project.ended(removal.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    evidence = ended.targets[0].evidence
    assert evidence is not None
    assert evidence.state == "idle"
    assert _slurm_nodes(cloud) == WORKERS
    assert machine_state.difference(story["before"][ADDED], machine_state.capture(LAB, ADDED)) == []


async def test_a_decommission_leaves_every_machine_as_it_was(cloud: LocalCloud, project: Project) -> None:
    operation = await project.client.call(
        instances.DECOMMISSION,
        instances.Decommission(reason="the story ends"),
        project_id=project.project_id,
        instance_id=story["instance_id"],
    )
    ended = await project.ended(operation.operation_id)
    assert (ended.status, ended.error) == ("succeeded", None)
    for name in WORKERS:
        assert machine_state.difference(story["before"][name], machine_state.capture(LAB, name)) == []
    allocations = await project.allocations()
    assert sorted(allocations) == [*WORKERS, ADDED]
    assert not any(found.used_by_instance_ids for found in allocations.values())


def test_a_failed_deploy_tells_the_whole_story_and_can_be_decommissioned(cloud: LocalCloud) -> None:
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
        told = cloud.gpuaas("describe", "operation", operation_id).stdout
        members = json.loads(cloud.gpuaas("get", "members", "--instance", "doomed", "-o", "json").stdout)["items"]
        lost = next(found for found in members if found["node_name"] == "gpu-2")
        assert lost["status"] == "failed"
        assert lost["adapter_detail"]["machine"]
        for word in (instance["instance_id"], lost["member_id"], operation_id, operation["correlation_id"], "gpu-2"):
            assert word in told
        cloud.gpuaas("decommission", "doomed", "--yes", "--reason", "it failed")
        gone = json.loads(cloud.gpuaas("get", "instance", instance["instance_id"], "-o", "json").stdout)
        assert gone["status"] == "deleted"
    finally:
        cloud.lab("heal", "gpu-2")
    assert machine_state.difference(story["before"]["gpu-1"], machine_state.capture(LAB, "gpu-1")) == []


def _as_user(cloud: LocalCloud, line: str) -> str:
    """What a person types on the login machine, reached with a certificate of the platform."""
    return cloud.gpuaas("ssh", "gpu-1", "--", "sudo", "-n", "-i", "-u", "researcher", "bash", "-lc", line).stdout


def _slurm_nodes(cloud: LocalCloud) -> list[str]:
    said = cloud.gpuaas("ssh", "gpu-1", "--", "sudo", "-n", "sinfo", "-h", "-N", "-o", "%N").stdout
    return sorted(said.split())


def _wait_for_job(cloud: LocalCloud, job_id: str, state: str) -> None:
    line = f"until scontrol -o show job {job_id} | grep -q JobState={state}; do sleep 0.2; done"
    try:
        _as_user(cloud, f"timeout 60 bash -c '{line}'")
    except AssertionError:
        said = _as_user(cloud, f"scontrol show job {job_id}")
        pytest.fail(f"job {job_id} did not become {state}:\n{said}")


def _nothing_doubled(operation: operations.Operation) -> bool:
    keys = [(step.name, step.member_id) for step in operation.steps]
    return len(keys) == len(set(keys)) and all(step.state == "succeeded" for step in operation.steps)
