"""Upgrade and rollback of a cluster through the platform, the agents and the command line, on machines without any
package source: a job on two nodes and a queue continue, a failing canary stops it, and it is rolled back.

Long: `make test-slurm` runs it."""

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import machine_state
import pytest
import slurm_bundles
import slurm_jobs
from cloud_in_use import Cloud
from slurm_people import until

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(3600)]

LAB, PORT = "versions", "7303"
NODES = ("gpu-1", "gpu-2", "gpu-3", "gpu-4")
CANARY = "gpu-2"
BROKEN = "/etc/systemd/system/slurmd.service.d/zz-broken.conf"
QUEUED = 3


class World(NamedTuple):
    cloud: Cloud
    versions: dict[str, str]
    """App versions: `old` and `new`."""
    before: dict[str, dict[str, object]]
    """What each machine was made of before the deploy."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with slurm_bundles.air_gapped(LAB, PORT, len(NODES)) as (cloud, versions):
        yield World(cloud, versions, {name: machine_state.capture(LAB, name) for name in NODES})


def test_a_cluster_without_package_sources_is_upgraded_under_jobs_and_rolled_back(world: World) -> None:
    cloud, old, new = world.cloud, *(slurm_bundles.slurm_version(world.versions[name]) for name in ("old", "new"))
    slurm_bundles.deploy(cloud, world.versions["old"], login_allocation_ids="gpu-4")
    assert _shown(cloud) == _installed(cloud) == dict.fromkeys(NODES, old)
    running, queued = slurm_jobs.start_long(cloud, "-N2"), [slurm_jobs.queue(cloud) for _ in range(QUEUED)]

    _a_failing_canary_stops_the_upgrade_and_is_undone(world, old, new)
    _continue(cloud, running, queued)

    history = slurm_jobs.history(cloud)
    cloud.gpuaas("upgrade", "slurm", "--version", world.versions["new"], "--reason", "new scheduler")
    assert _shown(cloud) == _installed(cloud) == dict.fromkeys(NODES, new)
    _continue(cloud, running, queued)
    assert "second step after gpu-2 gpu-3" in slurm_jobs.finish(cloud)
    slurm_jobs.until_completed(cloud, running, *queued)
    assert history.items() <= slurm_jobs.history(cloud).items(), "every record of before the upgrade is as it was"

    late = slurm_jobs.queue(cloud)
    slurm_jobs.until_completed(cloud, late)
    preview = cloud.gpuaas("rollback", "slurm", "--dry-run").stdout
    assert re.search(rf"Accounting loses the records of jobs \d+ to {late}\.", preview), preview
    cloud.gpuaas("rollback", "slurm", "--reason", "jobs crash")
    assert _shown(cloud) == _installed(cloud) == dict.fromkeys(NODES, old)
    assert history.items() <= slurm_jobs.history(cloud).items()
    again = slurm_jobs.queue(cloud)
    assert int(again) > int(late), "no number of a job is used again"
    slurm_jobs.until_completed(cloud, again)

    cloud.gpuaas("decommission", "slurm", "--yes", "--reason", "the test ends")
    assert [change for name in NODES for change in slurm_bundles.traces(LAB, name, world.before[name])] == []


def _a_failing_canary_stops_the_upgrade_and_is_undone(world: World, old: str, new: str) -> None:
    """The app repairs the worker by itself at the same time; that must not take the way back."""
    cloud = world.cloud
    cloud.on(CANARY, f"mkdir -p {Path(BROKEN).parent}; printf '[Service]\\nExecStartPre=/bin/false\\n' > {BROKEN}")
    failed = cloud.gpuaas("upgrade", "slurm", "--version", world.versions["new"], check=False)
    assert (failed.returncode, "the canary failed, so no other worker was changed" in failed.stderr) == (1, True)
    assert _installed(cloud) == {**dict.fromkeys(NODES, old), "gpu-1": new, CANARY: new}
    cloud.on(CANARY, f"rm {BROKEN}; systemctl daemon-reload")
    cloud.gpuaas("member", "repair", "slurm", CANARY, "--reason", "it works again", check=False)
    operation_id = next(item["operation_id"] for item in cloud.listed("operations") if item["kind"] == "upgrade")
    until("the upgrade is undone", functools.partial(_is_undone, cloud, operation_id))
    assert _shown(cloud) == _installed(cloud) == dict.fromkeys(NODES, old)


def _is_undone(cloud: Cloud, operation_id: str) -> bool:
    """Undo the upgrade, unless a repair is in progress."""
    done = cloud.gpuaas("op", "compensate", operation_id, "--reason", "return", check=False)
    assert done.returncode == 0 or "operation_in_progress" in done.stderr, f"{done.stdout[-1000:]}{done.stderr[-2000:]}"
    return done.returncode == 0


def _continue(cloud: Cloud, running: str, queued: list[str]) -> None:
    states = {slurm_jobs.state(cloud, job) for job in queued}
    assert (slurm_jobs.state(cloud, running), states) == ("RUNNING", {"PENDING"})


def _shown(cloud: Cloud) -> dict[str, str]:
    """The version of Slurm that the platform shows of each machine."""
    return {member["node_name"]: member["observed_version"] for member in cloud.listed("members", "slurm")}


def _installed(cloud: Cloud) -> dict[str, str]:
    asked = "dpkg-query -W -f '${Version}' slurm-client"
    return {name: cloud.on(name, asked).split("-")[0] for name in NODES}
