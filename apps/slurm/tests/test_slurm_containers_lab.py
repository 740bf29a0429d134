"""People run jobs in containers on real machines, as normal users. Nothing is left of a container at the end."""

import asyncio
import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload.footprint import OCI_CONF
from gpuaas_sdk.controller import Instance
from gpuaas_sdk.machine import CommandFailed
from slurm_lab import SHARED_HOME, Cloud, Lab

pytestmark = [pytest.mark.machines, pytest.mark.long]

# A bundle of the machine's own programs: machines of the lab have no route to a registry of images.
BUNDLE = r"""
mkdir -p bundle/rootfs/usr bundle/rootfs/tmp; cd bundle
for name in bin lib lib64; do ln -sfn "usr/$name" "rootfs/$name"; done
rm -f config.json; srun -w gpu-2 -D "$PWD" crun spec --rootless
python3 - <<'END'
import json
spec = json.load(open("config.json"))
spec["process"]["terminal"] = False
spec["hostname"] = "in-a-container"
spec["mounts"].append({"destination": "/usr", "type": "none", "source": "/usr", "options": ["rbind", "ro"]})
json.dump(spec, open("config.json", "w"))
END
"""
INTERACTIVE = r"""
srun -w "$1" --container="$HOME/bundle" sh -c 'hostname; id -u; test ! -e /etc/passwd && echo without-passwd'
"""
STATUS = r"""
srun -w gpu-2 --quiet --container="$HOME/bundle" sh -c 'exit 3' || echo $?
"""
BATCH = r"""
printf '#!/bin/sh\nhostname\nexit 4\n' > job.sh
timeout 120 sbatch --quiet --wait -w gpu-2 --container="$HOME/bundle" -o batch.txt job.sh || echo $?
cat batch.txt
"""
LONG = r"""
sbatch --parsable -w gpu-2 -o long.txt --wrap "srun --container=$HOME/bundle sleep 98765"
"""
# What containers have left on a worker: processes, and folders in the spool folder of slurmd.
LEFT = r"""
pgrep -ax crun || true
pgrep -af 'sleep 9876[5]' || true
find /var/lib/slurm/slurmd -path '*oci-job*'
"""
# The kernel then refuses user namespaces to all who log in.
NO_NAMESPACES = r"""
mkdir -p /etc/systemd/system/ssh.service.d
printf '[Service]\nRestrictNamespaces=yes\n' > /etc/systemd/system/ssh.service.d/no-namespaces.conf
systemctl daemon-reload
systemctl restart ssh
"""


@pytest.fixture
def lab() -> Iterator[Lab]:
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "slurmcont")
    machines.command("down", "--purge")
    try:
        machines.up(nodes=4)
        yield machines
    finally:
        machines.command("down", "--purge")


async def test_people_run_jobs_in_containers_and_a_decommission_leaves_nothing(lab: Lab) -> None:
    cloud = Cloud(lab, Settings())
    before = {name: await lab.snapshot(name) for name in ("gpu-1", "gpu-2", "gpu-3")}
    instance = cloud.instance("gpu-1", ["gpu-2"], home=SHARED_HOME, containers="oci")
    async with cloud.controller():
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        await lab.script("gpu-1", BUNDLE, "researcher")
        await _runs_containers(lab)
        await _leaves_nothing_of_a_cancelled_container(lab)
        await _restores_its_file(cloud, instance)

        await _add(cloud, instance, "gpu-3", "succeeded")
        assert await _interactive(lab, "gpu-3") == ["in-a-container", "0", "without-passwd"]
        await _refuses_a_worker_without_user_namespaces(cloud, instance)

        ended = await cloud.perform(instance, "decommission", force=True)
        assert ended.status == "succeeded", ended.error
    for name, was in before.items():
        assert await lab.snapshot(name) - was == set()


async def _runs_containers(lab: Lab) -> None:
    """A container runs for srun and sbatch, as the user of the job, and its exit status is that of the job."""
    assert await _interactive(lab, "gpu-2") == ["in-a-container", "0", "without-passwd"]
    assert (await lab.script("gpu-1", STATUS, "researcher")).split() == ["3"]
    assert (await lab.script("gpu-1", BATCH, "researcher")).split() == ["4", "in-a-container"]
    await _nothing_left(lab)


async def _leaves_nothing_of_a_cancelled_container(lab: Lab) -> None:
    job = (await lab.script("gpu-1", LONG, "researcher")).strip()
    async with asyncio.timeout(120):
        while "sleep 98765" not in await lab.run("gpu-2", "bash", "-c", LEFT):  # noqa: ASYNC110 - only a look shows it
            await asyncio.sleep(0.5)
    await lab.run("gpu-1", "scancel", job)
    await _nothing_left(lab)


async def _nothing_left(lab: Lab) -> None:
    async with asyncio.timeout(120):
        while await lab.run("gpu-2", "bash", "-c", LEFT):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.5)


async def _restores_its_file(cloud: Cloud, instance: Instance) -> None:
    """A repair puts oci.conf back, and slurmd uses it again."""
    written = await cloud.lab.run("gpu-1", "cat", OCI_CONF)
    await cloud.lab.run("gpu-1", "bash", "-c", f"echo 'RunTimeRun=\"false\"' > {OCI_CONF}; scontrol reconfigure")
    repaired = await cloud.perform(instance, "repair", ["gpu-1"], role="controller")
    assert repaired.status == "succeeded", repaired.error
    assert await cloud.lab.run("gpu-1", "cat", OCI_CONF) == written
    async with asyncio.timeout(60):
        while not await _works(cloud.lab):  # noqa: ASYNC110 - only a job shows which file slurmd has
            await asyncio.sleep(0.5)


async def _works(lab: Lab) -> bool:
    with contextlib.suppress(CommandFailed):
        return bool(await _interactive(lab, "gpu-2"))
    return False


async def _refuses_a_worker_without_user_namespaces(cloud: Cloud, instance: Instance) -> None:
    await cloud.lab.run("gpu-4", "bash", "-ec", NO_NAMESPACES)
    failed = await _add(cloud, instance, "gpu-4", "failed")
    assert "gpu-4 does not run containers of normal users" in failed.error.message
    assert "gpu-4" not in await cloud.lab.run("gpu-1", "sinfo", "-hN", "-o", "%N")


async def _add(cloud: Cloud, instance: Instance, name: str, status: str) -> Any:
    cloud.platform.records.add_member(instance, "worker", name)
    ended = await cloud.perform(instance, "add", [name])
    assert ended.status == status, ended.error
    return ended


async def _interactive(lab: Lab, name: str) -> list[str]:
    return (await lab.script("gpu-1", f"set -- {name}\n{INTERACTIVE}", "researcher")).split()
