"""Ray on real machines, by the commands of its page: a job of 200 tasks runs while a worker is drained and removed and
another one is added; no task is interrupted, and machines are as before at the end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from app_on_machines import AppCloud, app_cloud, until

pytestmark = [pytest.mark.machines, pytest.mark.long]

LAB, PORT, NODES = "raylong", "7345", ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
PAGE = Path(__file__).parents[2] / "apps/ray/docs/README.md"
TASKS = 200
GO = "/var/lib/gpuaas-work-ray/jobs/go"
"""The job starts its last tasks when this file exists on the head, so it cannot end before the new worker joins."""
JOB = f"""
import json, os, time, ray
ray.init()

@ray.remote(max_retries=0)  # a task that is interrupted ends the job
def task(number):
    time.sleep(3 if number < 100 else 1)
    return number, os.uname().nodename

def run(waiting):
    while waiting:
        [done], waiting = ray.wait(waiting)
        print(json.dumps(ray.get(done)), flush=True)

run([task.remote(number) for number in range(150)])
while not os.path.exists("{GO}"):
    time.sleep(0.2)
run([task.remote(number) for number in range(150, {TASKS})])
"""
JOB_S = 1800.0


@pytest.fixture
def cloud() -> Iterator[AppCloud]:
    with app_cloud("ray", LAB, PORT, NODES) as cloud:
        yield cloud


def test_a_job_of_200_tasks_survives_drain_remove_and_add_of_workers(cloud: AppCloud) -> None:
    version = cloud.publish(PAGE)
    before = cloud.captured()
    words = ("--set", "head_allocation_id=gpu-1", "--set", "worker_allocation_ids=gpu-2,gpu-3")
    cloud.gpuaas("deploy", "ray", "--version", version, *words, "--set", "object_store_mib=100")
    assert members(cloud) == dict.fromkeys(("gpu-1", "gpu-2", "gpu-3"), "ready")

    job = cloud.act("job.submit", "--input", f"script={JOB}")["rows"][0]["job"]
    until(lambda: {"gpu-2", "gpu-3"} <= {name for _, name in ended(cloud, job)}, within_s=JOB_S)
    refused = cloud.gpuaas("stop", "ray", check=False)
    assert (refused.returncode != 0, f"job {job}" in refused.stdout + refused.stderr) == (True, True)
    cloud.gpuaas("member", "drain", "ray", "gpu-2", "--reason", "maintenance")
    assert members(cloud)["gpu-2"] == "drained"
    cloud.gpuaas("member", "remove", "ray", "gpu-2")
    cloud.gpuaas("member", "add", "ray", "--role", "worker", "--allocation", "gpu-4")
    assert status(cloud, job) == "RUNNING"
    cloud.on("gpu-1", f"touch {GO}")
    until(lambda: status(cloud, job) != "RUNNING", within_s=JOB_S)

    tasks = ended(cloud, job)
    assert (status(cloud, job), sorted(number for number, _ in tasks)) == ("SUCCEEDED", list(range(TASKS)))
    assert {name for _, name in tasks} == {"gpu-2", "gpu-3", "gpu-4"}
    cloud.gpuaas("decommission", "ray", "--yes")
    assert cloud.traces(before) == []


def status(cloud: AppCloud, job: str) -> str:
    [row] = [row for row in cloud.act("job.list")["rows"] if row["job"] == job]
    return str(row["status"])


def ended(cloud: AppCloud, job: str) -> list[tuple[int, str]]:
    """The tasks that have ended, in their order, each with its machine."""
    lines: list[dict[str, Any]] = cloud.act("job.logs", "--input", f"job={job}")["rows"]
    return [tuple(json.loads(row["line"])) for row in lines if row["line"].startswith("[")]


def members(cloud: AppCloud) -> dict[str, str]:
    return {row["node_name"]: row["status"] for row in cloud.listed("members", "ray") if row["status"] != "removed"}
