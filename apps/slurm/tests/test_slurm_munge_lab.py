"""The key of a cluster with munge is replaced by hand on real machines, by the commands of `docs/keys.md`.

Long: `make test-slurm` runs it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import keys
from slurm_lab import Cloud, Lab

pytestmark = [pytest.mark.machines, pytest.mark.long]

PAGE = Path(__file__).parents[1] / "docs/keys.md"
MACHINES = ("gpu-1", "gpu-2")
RUNS = ("srun", "-Q", "--mem=16", "hostname")


@pytest.fixture
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "daymunge")
    machines.command("down", "--purge")
    try:
        machines.up(nodes=len(MACHINES))
        yield machines
    finally:
        machines.command("down", "--purge")


async def test_the_key_of_munge_is_replaced_while_the_cluster_is_stopped(lab: Lab) -> None:
    cloud = Cloud(lab, Settings())
    async with cloud.controller():
        instance = cloud.instance("gpu-1", ["gpu-2"], auth="munge")
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        before = await _digests(lab)
        stopped = await cloud.perform(instance, "stop")
        assert stopped.status == "succeeded", stopped.error

        for command in _shown():
            await lab.run("gpu-1", "sh", "-ec", command)

        started = await cloud.perform(instance, "start")
        assert started.status == "succeeded", started.error
        after = await _digests(lab)
        assert (len(before), len(after), before & after) == (1, 1, set()), "every machine has the new key"
        assert (await lab.run("gpu-1", *RUNS, as_user="researcher")).split() == ["gpu-2"]
        gone = await cloud.perform(instance, "decommission", force=True)
        assert gone.status == "succeeded", gone.error


async def _digests(lab: Lab) -> set[str]:
    return {(await lab.run(name, "sha256sum", keys.MUNGE_KEY)).split()[0] for name in MACHINES}


def _shown() -> list[str]:
    """Return the commands of the page for the machine of the controller."""
    lines = re.findall(r"^    gpuaas ssh slurm --root -- sudo (.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) == 2, lines
    return [line.removeprefix("sh -c ").strip("'") if line.startswith("sh -c ") else line for line in lines]
