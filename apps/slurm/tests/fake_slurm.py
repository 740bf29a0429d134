"""A Slurm that answers the app's commands from memory, for tests of the handlers without machines."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_sdk.controller import Instance, Member, RunnerSettings
from gpuaas_sdk.machine import Ran
from gpuaas_sdk.testing import FakeMachines, FakePlatform

SETTINGS = Settings(reach_s=1, reach_leaving_s=1, reach_retry_s=0.01, first_job_s=1, cancel_jobs_s=5)
OK = Ran(0, "", "")


@dataclass
class FakeSlurm:
    """The state that Slurm's commands show and change."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """Name -> flags, as `scontrol show nodes` lists them."""
    jobs: list[int] = field(default_factory=list)
    jobs_at_close: list[int] = field(default_factory=list)
    """Jobs that start at the moment the partition is closed: after the first look at the queue."""
    first_job_answers: bool = True
    partition_states: list[str] = field(default_factory=list)

    def answer(self, argv: tuple[str, ...]) -> Ran:
        match argv:
            case ("timeout", _, "scontrol", "ping"):
                return Ran(0, "Slurmctld(primary) at gpu-1 is UP\n", "")
            case ("timeout", "--kill-after=5", _, "srun", *arguments):
                return self._first_job(arguments)
            case ("scontrol", "show", "nodes", "--json"):
                return _json(nodes=[{"name": name, "state": flags} for name, flags in self.nodes.items()])
            case ("squeue", "--json", *_):
                return _json(jobs=[{"job_id": job, "user_name": "ada", "job_state": ["RUNNING"]} for job in self.jobs])
            case ("scontrol", "update", "partitionname=main", change):
                return self._set_partition(change.removeprefix("state="))
            case ("scancel", *jobs):
                self.jobs = [job for job in self.jobs if str(job) not in jobs]
        return OK

    def _first_job(self, arguments: Sequence[str]) -> Ran:
        if not self.first_job_answers:
            return Ran(1, "", "srun: job is queued and waits for resources")
        nodes = next(argument for argument in arguments if argument.startswith("--nodelist="))
        return Ran(0, nodes.removeprefix("--nodelist=").replace(",", "\n"), "")

    def _set_partition(self, state: str) -> Ran:
        self.partition_states.append(state)
        if state == "down":
            self.jobs += self.jobs_at_close
        return OK


@dataclass
class Cluster:
    """A deployed instance of the app on fake machines: gpu-1 is the controller, gpu-2 a worker."""

    slurm: FakeSlurm
    platform: FakePlatform
    machines: FakeMachines
    instance: Instance

    def add_worker(self, name: str) -> Member:
        return self.platform.records.add_member(self.instance, "worker", name)

    async def perform(self, kind: Any, targets: Sequence[Member] | None = None, **options: Any) -> Any:
        """Request an operation and return it after its end."""
        role = "worker" if targets else ""
        operation = self.platform.request(self.instance, kind, targets, component_key=role, **options)
        return await self.platform.ended(operation.operation_id)

    def statuses(self) -> dict[str, str]:
        return {member.node_name: member.status for member in self.platform.members(self.instance)}


@contextlib.asynccontextmanager
async def deployed_cluster() -> AsyncIterator[Cluster]:
    slurm = FakeSlurm(nodes={"gpu-2": ["IDLE"]})
    platform, machines = FakePlatform("slurm"), FakeMachines(slurm.answer)
    inputs = {"cluster_name": "lab", "controller_allocation_id": "alloc_gpu-1"}
    members = {"controller": ["gpu-1"], "worker": ["gpu-2"]}
    instance = platform.add_instance(members, topology="split", inputs=inputs, ready=True)
    async with platform.serve() as client:
        runner = controller.build(SETTINGS).runner(
            client, platform.project_id, "test", settings=RunnerSettings(claim_wait_s=1), connect=machines.connect
        )
        running = asyncio.create_task(runner.run())
        try:
            yield Cluster(slurm, platform, machines, instance)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running


def _json(**content: Any) -> Ran:
    return Ran(0, json.dumps(content), "")
