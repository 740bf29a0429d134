"""The process of the app's controller is killed with SIGKILL at the begin of every step of a reconfigure, an upgrade, a
rollback and a replace, on machines without any package source. The next process continues each time; a job that runs at
the same time is not disturbed.

Long: `make test-slurm` runs it."""

import functools
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import controller_process
import machine_state
import pytest
import slurm_bundles
import slurm_jobs
from cloud_in_use import Cloud
from controller_process import Controller
from gpuaas_contract.operations import OPERATION_GET, Operation
from slurm_people import until

pytestmark = [pytest.mark.machines, pytest.mark.long, pytest.mark.timeout(5400)]

LAB, PORT = "slurmkills", "7305"
NODES = ("gpu-1", "gpu-2", "gpu-3")
WHY = ("--reason", "kills")
STEPS_MIN = {"reconfigure": 2, "upgrade": 12, "rollback": 12, "replace": 4}
"""So many steps each operation has at least: a kill at each of them."""


class World(NamedTuple):
    cloud: Cloud
    versions: dict[str, str]
    before: dict[str, dict[str, object]]


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with slurm_bundles.air_gapped(LAB, PORT, len(NODES)) as (cloud, versions):
        yield World(cloud, versions, {name: machine_state.capture(LAB, name) for name in NODES})


async def test_operations_end_although_their_controller_is_killed_at_every_step(world: World) -> None:
    cloud, old, new = world.cloud, *(slurm_bundles.slurm_version(world.versions[name]) for name in ("old", "new"))
    slurm_bundles.deploy(cloud, world.versions["old"], workers="gpu-2")
    running = slurm_jobs.start_long(cloud, "-N1")
    with controller_process.of(cloud) as controller:
        await _killed(cloud, controller, "reconfigure", "slurm", "--set", "default_time=00:30:00")
        await _killed(cloud, controller, "upgrade", "slurm", "--version", world.versions["new"])
        assert (_versions(cloud), slurm_jobs.state(cloud, running)) == ({"gpu-1": new, "gpu-2": new}, "RUNNING")
        await _killed(cloud, controller, "rollback", "slurm")
        assert (_versions(cloud), slurm_jobs.state(cloud, running)) == ({"gpu-1": old, "gpu-2": old}, "RUNNING")
        assert "second step after gpu-2" in slurm_jobs.finish(cloud)
        slurm_jobs.until_completed(cloud, running)
        await _killed(cloud, controller, "member", "replace", "slurm", "gpu-2", "--with", "gpu-3")
        assert _versions(cloud) == {"gpu-1": old, "gpu-3": old}
        slurm_jobs.until_completed(cloud, slurm_jobs.submit(cloud, "-N1 -o /dev/null --wrap hostname"))
        cloud.gpuaas("decommission", "slurm", "--yes", *WHY)
    assert [change for name in NODES for change in slurm_bundles.traces(LAB, name, world.before[name])] == []


async def _killed(cloud: Cloud, controller: Controller, *words: str) -> None:
    """Request the operation, kill the controller whenever a step has begun, and expect that it succeeds."""
    began, kills = time.monotonic(), 0
    seen: set[tuple[str, str]] = set()
    interrupted: set[tuple[str, str]] = set()
    operation_id = _requested(cloud, words)
    async with cloud.client() as client:
        read = functools.partial(client.call, OPERATION_GET, project_id=cloud.project_id, operation_id=operation_id)
        async for operation in client.watch_operation(cloud.project_id, operation_id):
            if operation.ended_at is None and _begun(operation) - seen:
                controller.kill()
                kills += 1
                left = await read()
                seen |= _begun(operation) | _begun(left)
                interrupted |= _begun(left, state="running")
                controller.start()
        ended = await read()
    without = _begun(ended) - seen
    sys.stdout.write(
        f"{ended.kind}: {kills} kills, {len(seen)} steps with a kill after their begin, {len(interrupted)} of them "
        f"interrupted, {len(without)} without {sorted(without)}, {time.monotonic() - began:.0f} s\n"
    )
    assert ended.status == "succeeded", ended.error
    assert len(seen) >= STEPS_MIN[ended.kind], sorted(seen)
    # The last step may begin and end within one answer of the watch. After every other begin there was a kill.
    assert len(without) <= 1, sorted(without)
    # Steps that begin before a kill has its effect share it; the last kill may come when the end is reported.
    assert ended.attempts >= kills > len(seen) // 3


def _requested(cloud: Cloud, words: tuple[str, ...]) -> str:
    """Request the operation, unless the app repairs a member by itself at the moment. Return its id."""
    printed: list[str] = []

    def is_accepted() -> bool:
        done = cloud.gpuaas(*words, *WHY, "--detach", check=False)
        assert done.returncode == 0 or "operation_in_progress" in done.stderr, done.stderr[-2000:]
        printed[:] = done.stdout.split()
        return done.returncode == 0

    until(f"{' '.join(words)} is accepted", is_accepted)
    return printed[-1]


def _begun(operation: Operation, state: str = "") -> set[tuple[str, str]]:
    """Return the steps that have begun, and their members; with a state, only those that have it."""
    steps = [step for step in operation.steps if not step.name.startswith("wait")]
    return {(step.name, step.member_id) for step in steps if state in ("", step.state)}


def _versions(cloud: Cloud) -> dict[str, str]:
    return {member["node_name"]: member["observed_version"] for member in cloud.listed("members", "slurm")}
