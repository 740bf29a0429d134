"""A Slurm that answers the app's commands from memory, for tests of the handlers without machines."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import facts
from gpuaas_sdk.controller import Instance, Member, RunnerSettings
from gpuaas_sdk.machine import Ran
from gpuaas_sdk.testing import FakeMachines, FakePlatform

SETTINGS = Settings(reach_s=0.2, reach_leaving_s=0.2, first_job_s=1, join_s=0.2, cancel_jobs_s=0.2, drain_poll_s=0.01)
OK = Ran(0, "", "")
CLUSTER_NAME = "lab"
FACTS = """hostname=gpu
cpus=4
memory_mb=8000
cgroup_v1=0
cgroup_controllers=cpu cpuset memory
slurmd=NodeName=gpu CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000
"""
AWAY = Ran(1, "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
NODE_FAULTS = {"DOWN", "NOT_RESPONDING"}


@dataclass
class FakeJob:
    """A job as squeue lists it. A queued job has no node; `required` is its --nodelist."""

    job_id: int
    node: str = "gpu-2"
    user: str = "ada"
    required: str = ""
    started_at: int = 0
    ends_at: int = 0
    gpus: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "user_name": self.user,
            "job_state": ["RUNNING" if self.node else "PENDING"],
            "nodes": self.node,
            "required_nodes": self.required,
            "start_time": _number(self.started_at),
            "end_time": _number(self.ends_at),
            "tres_alloc_str": f"cpu=1,gres/gpu={self.gpus}",
        }


@dataclass
class FakeSlurm:
    """The state that Slurm's commands show and change."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """Name -> flags, as `scontrol show nodes` lists them."""
    reasons: dict[str, str] = field(default_factory=dict)
    jobs: list[FakeJob] = field(default_factory=list)
    jobs_at_close: list[FakeJob] = field(default_factory=list)
    """Jobs that start at the moment the partition is closed: after the first look at the queue."""
    first_job_answers: bool = True
    first_jobs_on: list[str] = field(default_factory=list)
    """The node of each first job that ran."""
    partition_states: list[str] = field(default_factory=list)
    is_up: bool = True
    drains_to_forget: int = 0
    """How many of the next drains are confirmed and then lost, as by a crash of slurmctld."""
    changes: list[str] = field(default_factory=list)
    """The changes of nodes, in order: `drain gpu-2`."""
    receipts: list[str] = field(default_factory=list)
    """Paths of the receipts on every machine."""
    scripts: list[tuple[str, ...]] = field(default_factory=list)
    stopped_units: set[str] = field(default_factory=set)
    """Units of systemd that are not active, until they are restarted."""

    def answer_script(self, text: str) -> Ran | None:
        """Return what scripts print that read a machine; None for those that change one."""
        return Ran(0, FACTS, "") if facts.SCRIPT in text else None

    def answer(self, argv: tuple[str, ...]) -> Ran:
        match argv:
            case ("timeout", _, "scontrol", "ping"):
                return Ran(0, f"Slurmctld(primary) at gpu-1 is {'UP' if self.is_up else 'DOWN'}\n", "")
            case ("timeout", "--kill-after=5", _, "srun", *arguments):
                return self._first_job(arguments)
            case ("scontrol" | "squeue" | "scancel", *_) if not self.is_up:
                return AWAY
            case ("scontrol", "show", "nodes", "--json"):
                return _json(nodes=[self._node(name) for name in self.nodes])
            case ("squeue", "--json", "-w", name, *_):
                return _json(jobs=[job.as_json() for job in self.jobs if job.node == name])
            case ("squeue", "--json"):
                return _json(jobs=[job.as_json() for job in self.jobs])
            case ("scontrol", "update", "partitionname=main", change):
                return self._set_partition(change.removeprefix("state="))
            case ("scontrol", "update", name, change, *reason):
                return self._set_node(name.removeprefix("nodename="), change.removeprefix("state="), reason)
            case ("scontrol", "delete", name):
                return self._delete(name.removeprefix("nodename="))
            case ("scancel", *jobs):
                self.jobs = [job for job in self.jobs if str(job.job_id) not in jobs or self._is_dead(job.node)]
            case ("timeout", _, "sacctmgr", "-nP", "show", "cluster", *_):
                return Ran(0, f"{CLUSTER_NAME}\n", "")
            case ("systemctl", "is-active", "-q", unit):
                return Ran(3, "", "") if unit in self.stopped_units else OK
            case ("systemctl", "restart", unit):
                self.stopped_units.discard(unit)
            case ("find", *_):
                return Ran(0, "\n".join(self.receipts), "")
        return OK

    def _node(self, name: str) -> dict[str, Any]:
        return {"name": name, "state": self.nodes[name], "reason": self.reasons.get(name, "")}

    def _is_dead(self, name: str) -> bool:
        """A node without slurmd cannot end its jobs."""
        return bool(NODE_FAULTS & set(self.nodes.get(name, [])))

    def _first_job(self, arguments: Sequence[str]) -> Ran:
        if not self.first_job_answers:
            return Ran(1, "", "srun: job is queued and waits for resources")
        nodes = next(argument for argument in arguments if argument.startswith("--nodelist="))
        names = nodes.removeprefix("--nodelist=").split(",")
        self.first_jobs_on += names
        return Ran(0, "\n".join(names), "")

    def _set_partition(self, state: str) -> Ran:
        self.partition_states.append(state)
        if state == "down":
            self.jobs += self.jobs_at_close
        return OK

    def _set_node(self, name: str, state: str, reason: list[str]) -> Ran:
        self.changes.append(f"{state} {name}")
        flags = set(self.nodes[name]) - {"DRAIN"}
        if state == "drain" and self.drains_to_forget:
            self.drains_to_forget -= 1
        elif state == "drain":
            flags.add("DRAIN")
            self.reasons[name] = reason[0].removeprefix("reason=")
        elif state == "down":
            flags = {"DOWN", "DRAIN"}
            self.jobs = [job for job in self.jobs if job.node != name]
        self.nodes[name] = sorted(flags)
        return OK

    def _delete(self, name: str) -> Ran:
        if any(job.node == name for job in self.jobs):
            return Ran(1, "", "slurm_update error: Requested node state is busy")
        self.changes.append(f"delete {name}")
        self.nodes.pop(name, None)
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
        role = targets[0].component_key if targets else ""
        operation = self.platform.request(self.instance, kind, targets, component_key=role, **options)
        return await self.platform.ended(operation.operation_id)

    async def started(self, kind: Any, targets: Sequence[Member] | None = None, **options: Any) -> str:
        """Request an operation and return its id."""
        role = "worker" if targets else ""
        return self.platform.request(self.instance, kind, targets, component_key=role, **options).operation_id

    def member(self, name: str) -> Member:
        """Return the worker on this node, also after it was removed."""
        members = self.platform.records.members.values()
        return next(each for each in members if (each.node_name, each.component_key) == (name, "worker"))

    def member_of(self, instance: Instance, name: str) -> Member:
        """Return the live member of the instance on this node."""
        return next(each for each in self.platform.members(instance) if each.node_name == name)

    def status(self) -> str:
        return self.platform.records.instances[self.instance.instance_id].status

    def statuses(self) -> dict[str, str]:
        return {member.node_name: member.status for member in self.platform.members(self.instance)}


@contextlib.asynccontextmanager
async def deployed_cluster() -> AsyncIterator[Cluster]:
    slurm = FakeSlurm(nodes={"gpu-2": ["IDLE"]})
    platform, machines = FakePlatform("slurm"), FakeMachines(slurm.answer, slurm.answer_script)
    inputs = {"cluster_name": CLUSTER_NAME, "controller_allocation_id": "alloc_gpu-1"}
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


def _number(value: int) -> dict[str, Any]:
    return {"set": bool(value), "infinite": False, "number": value}
