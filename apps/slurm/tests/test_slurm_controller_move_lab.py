"""The controller moves between real machines under a running job and a queue, first with a return.

Long: `make test-slurm` runs it."""

import asyncio
import os
from collections.abc import Iterator

import pytest
from gpuaas_app_slurm.settings import Settings
from gpuaas_sdk.controller import Instance
from slurm_lab import SHARED_HOME, Cloud, Lab

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(3600)]

LONG = r"""
cat > ~/long.sh <<'SCRIPT'
#!/bin/bash
srun bash -c 'until [ -e ~/finish ]; do sleep 0.5; done; hostname -s'
srun hostname -s
SCRIPT
sbatch --parsable -N2 --ntasks-per-node=1 --exclusive -o ~/long.txt ~/long.sh
"""
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "NODE_FAIL", "TIMEOUT")


@pytest.fixture
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "slurmmove")
    machines.command("down", "--purge")
    try:
        machines.up()
        yield machines
    finally:
        machines.command("down", "--purge")


async def test_the_controller_moves_under_a_running_job_and_a_queue_and_before_that_returns(lab: Lab) -> None:
    cloud = Cloud(lab, Settings())
    before = await lab.snapshot("gpu-1")
    instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"], home=SHARED_HOME)
    async with cloud.controller():
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        first = (await lab.script("gpu-1", "sbatch --parsable --wait --wrap hostname", "researcher")).strip()
        running = (await lab.script("gpu-1", LONG, "researcher")).strip()
        queued = (await lab.script("gpu-1", "sbatch --parsable -N2 --exclusive --wrap hostname", "researcher")).strip()
        await _until(lab, "gpu-1", running, ("RUNNING",))

        await _returns(lab, cloud, instance)
        assert await _states(lab, "gpu-1", first, running, queued) == ["COMPLETED", "RUNNING", "PENDING"]

        moved = await cloud.perform(instance, "replace", ["gpu-1"], role="controller", replacements=["gpu-4"])
        assert moved.status == "succeeded", moved.error
        assert await _states(lab, "gpu-4", first, running, queued) == ["COMPLETED", "RUNNING", "PENDING"]
        assert await lab.snapshot("gpu-1") - before == set()

        await lab.run("gpu-2", "touch", "/shared/home/researcher/finish", as_user="researcher")
        for job in (running, queued):
            assert await _until(lab, "gpu-4", job, ENDED) == "COMPLETED"
        written = await lab.run("gpu-2", "cat", "/shared/home/researcher/long.txt")
        assert sorted(written.split()) == ["gpu-2", "gpu-2", "gpu-3", "gpu-3"]


async def _returns(lab: Lab, cloud: Cloud, instance: Instance) -> None:
    """Cancel a move when slurmctld runs on the new machine already."""
    await cloud.free(instance)
    asked = cloud.request(instance, "replace", ["gpu-1"], role="controller", replacements=["gpu-4"])
    await cloud.platform.until(
        asked.operation_id, lambda now: any("srun on" in step.message for step in now.steps), timeout_s=300
    )
    cloud.platform.cancel(asked.operation_id)
    ended = await cloud.platform.ended(asked.operation_id, timeout_s=300)
    assert ended.status == "cancelled", ended.error


async def _states(lab: Lab, head: str, *jobs: str) -> list[str]:
    """Return the states of jobs as accounting has them."""
    rows = await lab.run(head, "sacct", "-XnP", "-j", ",".join(jobs), "-o", "JobID,State")
    states = dict(row.split("|") for row in rows.splitlines())
    return [states[job] for job in jobs]


async def _until(lab: Lab, head: str, job: str, wanted: tuple[str, ...]) -> str:
    async with asyncio.timeout(300):
        while True:
            [state] = await _states(lab, head, job)
            if state in wanted:
                return state
            await asyncio.sleep(1)
