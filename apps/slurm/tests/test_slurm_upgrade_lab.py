"""Upgrade and rollback on real machines without any package source: two bundles, a running job, a queue."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload.footprint import REST_PACKAGES, SLURM
from gpuaas_sdk.controller import Instance
from gpuaas_sdk.installs.bundles import command, make, resolver
from gpuaas_sdk.machine import connect
from slurm_lab import Cloud, Lab

pytestmark = [pytest.mark.machines, pytest.mark.long]

MACHINES = ("gpu-1", "gpu-2", "gpu-3")


@pytest.fixture
def lab() -> Iterator[Lab]:
    """Machines whose only package source is an empty folder."""
    machines = Lab(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab"), "slurmupgrade")
    machines.command("down", "--purge")
    try:
        machines.up(packages=(), nodes=len(MACHINES))
        yield machines
    finally:
        machines.command("down", "--purge")


class Versions:
    """Two versions of the app with a bundle each, which every machine gets as the platform would place it."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self._cloud, self._folder = cloud, folder
        self.names: dict[str, str] = {}

    async def make(self, release: str) -> str:
        """Make a bundle, publish it with an app version and return the version of Slurm in it."""
        file = self._folder / f"{release}.tar"
        wanted = make.Wanted(SLURM, release, *resolver.host_mirror(), more=REST_PACKAGES)
        index = await asyncio.to_thread(make.make, wanted, file, lambda text: None)
        content = file.read_bytes()
        artifact = self._cloud.platform.artifacts.put(SLURM.bundle_artifact, content)
        manifest = command.version_manifest(self._cloud.app.manifest, SLURM, index, artifact.digest, "")
        self._cloud.platform.add_version(manifest)
        self.names[release] = manifest.version
        await asyncio.gather(*(self._place(name, artifact.digest, content) for name in MACHINES))
        return index.version.split("-")[0]

    async def _place(self, name: str, digest: str, content: bytes) -> None:
        folder = f"/var/lib/gpuaas/artifacts/alloc_{name}/sha256"
        async with connect(self._cloud.lab.target(name)) as machine:
            await machine.run("mkdir", "-p", folder)
            await machine.put(f"{folder}/{digest.removeprefix('sha256:')}", content)


async def test_a_cluster_without_package_sources_is_upgraded_under_a_running_job_and_rolled_back(
    lab: Lab, tmp_path: Path
) -> None:
    cloud = Cloud(lab, Settings())
    versions = Versions(cloud, tmp_path)
    old, new = await versions.make("trixie"), await versions.make("forky")
    async with cloud.controller():
        instance = instance_of(cloud, versions.names["trixie"])
        deployed = await cloud.perform(instance, "deploy")
        assert deployed.status == "succeeded", deployed.error
        assert _versions(cloud, instance) == dict.fromkeys(MACHINES, old)

        running, queued = await _submit_long_job(lab), await _submit_queued_job(lab)
        await _a_failing_canary_stops_the_upgrade(lab, cloud, instance, versions)
        ended = await move(cloud, instance, "upgrade", versions.names["forky"])
        assert ended.status == "succeeded", ended.error
        assert _versions(cloud, instance) == dict.fromkeys(MACHINES, new)
        assert await _state(lab, running) == "RUNNING"

        await lab.run("gpu-1", "touch", "/shared/home/researcher/finish", as_user="researcher")
        assert await _ended(lab, running) == "COMPLETED"
        assert await _ended(lab, queued) == "COMPLETED"
        assert "ticks on gpu-2 gpu-3" in await lab.run("gpu-1", "cat", "/shared/home/researcher/long.txt")

        last = await _submit_queued_job(lab)
        back = await move(cloud, instance, "rollback", versions.names["trixie"])
        assert back.status == "succeeded", back.error
        assert _versions(cloud, instance) == dict.fromkeys(MACHINES, old)
        assert int(await _submit_queued_job(lab)) > int(last), "numbers of jobs are not used again"
        gone = await cloud.perform(instance, "decommission", force=True)
        assert gone.status == "succeeded", gone.error


def instance_of(cloud: Cloud, version: str, **inputs: Any) -> Instance:
    instance = cloud.instance("gpu-1", ["gpu-2", "gpu-3"], packages="bundle", **inputs)
    manifest = cloud.platform.artifacts.version(version).manifest
    digests = {name: reference.digest for name, reference in manifest.artifacts.items()}
    placed = msgspec.structs.replace(instance, app_version=version, artifacts=digests)
    cloud.platform.records.instances[instance.instance_id] = placed
    return placed


async def move(cloud: Cloud, instance: Instance, kind: Any, version: str) -> Any:
    """Request an upgrade or a rollback of the instance as it is now: its version changes."""
    return await cloud.perform(cloud.platform.instance(instance.instance_id), kind, to_version=version)


def _versions(cloud: Cloud, instance: Instance) -> dict[str, str]:
    return {member.node_name: member.observed_version for member in cloud.platform.members(instance)}


UNFINISHED = ("", "PENDING", "RUNNING", "COMPLETING")

LONG = r"""#!/bin/sh
srun --mem=200 -N2 sh -c 'while [ ! -e finish ]; do sleep 0.5; done; hostname' | sort | tr '\n' ' ' > hosts
srun --mem=200 -N2 true && echo "ticks on $(cat hosts)"
"""


async def _submit_long_job(lab: Lab) -> str:
    """Start a job on both workers that runs until a file exists, and then starts a second step."""
    text = f"rm -f finish; cat > long <<'END'\n{LONG}END\nsbatch --parsable -N2 --mem=200 -o long.txt long"
    job = (await lab.script("gpu-1", text, "researcher")).strip()
    await _until_state(lab, job, "RUNNING")
    return job


async def _submit_queued_job(lab: Lab) -> str:
    """Submit a job that needs both workers for itself."""
    text = "sbatch --parsable -N2 --exclusive -o queued.txt --wrap hostname"
    return (await lab.script("gpu-1", text, "researcher")).strip()


async def _state(lab: Lab, job: str) -> str:
    shown = await lab.run("gpu-1", "sacct", "-nXP", "-j", job, "-o", "State")
    return shown.strip()


async def _until_state(lab: Lab, job: str, wanted: str) -> None:
    async with asyncio.timeout(120):
        while wanted not in await _state(lab, job):  # noqa: ASYNC110 - only a look shows the state of a job
            await asyncio.sleep(0.5)


async def _ended(lab: Lab, job: str) -> str:
    async with asyncio.timeout(120):
        while (shown := await _state(lab, job)) in UNFINISHED:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.5)
    return shown


async def _a_failing_canary_stops_the_upgrade(lab: Lab, cloud: Cloud, instance: Instance, versions: Versions) -> None:
    """The canary's slurmd does not start: the other worker is untouched, and the undo returns to the old version."""
    drop_in = "/etc/systemd/system/slurmd.service.d/zz-broken.conf"
    async with connect(lab.target("gpu-2")) as machine:
        await machine.put(drop_in, "[Service]\nExecStartPre=/bin/false\n")
    before = _versions(cloud, instance)
    failed = await move(cloud, instance, "upgrade", versions.names["forky"])
    assert (failed.status, "the canary failed" in failed.error.message) == ("failed", True), failed.error
    assert _versions(cloud, instance)["gpu-3"] == before["gpu-3"]
    await lab.run("gpu-2", "rm", drop_in)
    await lab.run("gpu-2", "systemctl", "daemon-reload")
    cloud.platform.compensate(failed.operation_id)
    undone = await cloud.platform.ended(failed.operation_id, timeout_s=300)
    assert undone.status == "cancelled", undone.error
    assert _versions(cloud, instance) == before
