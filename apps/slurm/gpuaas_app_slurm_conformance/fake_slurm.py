"""A Slurm that answers the app's commands from memory, for tests of the handlers without machines."""

import asyncio
import contextlib
import datetime
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm.workload import facts, footprint, job_records, nodes, observed, people, queue, rest, users
from gpuaas_contract.catalog import StewardSpec
from gpuaas_contract.permissions import CONTROLLER_KEYS
from gpuaas_sdk.controller import App, Gauges, Instance, Member, RunnerSettings
from gpuaas_sdk.installs import uninstall
from gpuaas_sdk.machine import Ran, shell
from gpuaas_sdk.testing import FakeHost, FakeMachines, FakePlatform

from gpuaas_app_slurm_conformance import fake_queue
from gpuaas_app_slurm_conformance.fake_accounting import FakeAccounting
from gpuaas_app_slurm_conformance.fake_keys import FakeKeys
from gpuaas_app_slurm_conformance.fake_queue import FakeQueue
from gpuaas_app_slurm_conformance.fake_tokens import FakeTokens

SETTINGS = Settings(
    reach_s=0.2,
    reach_leaving_s=0.2,
    reach_repair_s=0.2,
    first_job_s=1,
    join_s=0.2,
    cancel_jobs_s=0.2,
    drain_poll_s=0.01,
    accounts_s=0.2,
    last_usage_s=0.2,
    old_key_s=0.01,
)
OK = Ran(0, "", "")
CLUSTER_NAME = "lab"
FACTS = """hostname=gpu
cpus=4
memory_mb=8000
cgroup_v1=0
cgroup_controllers=cpu cpuset memory
slurmd=NodeName=gpu CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=8000
"""
TIER = "PriorityJobFactor=1 PriorityTier=1"
"""What Slurm shows for a partition without a tier of its own."""
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
    name: str = ""
    partition: str = "main"
    limit_minutes: int = 60
    comment: str = ""
    is_batch: bool = True
    submit_host: str = "gpu-1"
    """Where its user ran sbatch, srun or salloc."""

    def as_json(self) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "user_name": self.user,
            "name": self.name,
            "job_state": ["RUNNING" if self.node else "PENDING"],
            "nodes": self.node,
            "required_nodes": self.required,
            "start_time": _number(self.started_at),
            "end_time": _number(self.ends_at),
            "partition": self.partition,
            "comment": self.comment,
            "batch_flag": self.is_batch,
            "allocating_node": self.submit_host,
            "time_limit": _number(self.limit_minutes),
            "tres_alloc_str": f"cpu=1,gres/gpu={self.gpus}",
        }


@dataclass
class FakeSlurm:
    """The state that Slurm's commands show and change."""

    nodes: dict[str, list[str]] = field(default_factory=dict)
    """Name -> flags, as `scontrol show nodes` lists them."""
    reasons: dict[str, str] = field(default_factory=dict)
    jobs: list[FakeJob] = field(default_factory=list)
    queue_fails_at_close: bool = False
    """The queue cannot be read from the moment the partition is closed until it is open."""
    jobs_at_close: list[FakeJob] = field(default_factory=list)
    """Jobs that start at the moment the partition is closed: after the first look at the queue."""
    first_job_answers: bool = True
    first_job_waits: bool = False
    """The first job waits for the jobs of people, until it is ended."""
    jobs_end_with_first_job: bool = False
    """The jobs of people are short, and end while the first job of a node waits."""
    on_first_job: Callable[[], None] | None = None
    """What happens while a first job runs."""
    first_jobs_on: list[str] = field(default_factory=list)
    """The node of each first job that ran."""
    partition_states: list[str] = field(default_factory=list)
    conf: str = ""
    """The slurm.conf that slurmctld has read."""
    refuses: str = ""
    """A text that slurmctld refuses in a slurm.conf."""
    ends_at: str = ""
    """A text in a slurm.conf with which slurmctld ends when it reads it."""
    ends_times: int = 0
    """How often."""
    ignores: str = ""
    """A text whose lines slurmctld reads and does not use."""
    is_up: bool = True
    controllers: set[str] = field(default_factory=set)
    """The machines on which slurmctld runs; in `fresh_machines`."""
    drains_to_forget: int = 0
    """How many of the next drains are confirmed and then lost, as by a crash of slurmctld."""
    changes: list[str] = field(default_factory=list)
    """The changes of nodes, the units that were stopped and the ends of job steps, in order: `drain gpu-2`,
    `stop slurmd on gpu-2`, `end steps`."""
    slurmd_stays: int = 0
    """How many of the next stops of slurmd do not end it."""
    receipts: list[str] = field(default_factory=list)
    """Paths of the receipts on every machine."""
    uninstall_fails: bool = False
    on_uninstall: Callable[[], None] | None = None
    """What happens while Slurm is taken off a machine."""
    scripts: list[tuple[str, ...]] = field(default_factory=list)
    probes: dict[str, str] = field(default_factory=dict)
    """Files that the check of a shared folder wrote: path -> content."""
    accounting: FakeAccounting = field(default_factory=FakeAccounting)
    queue: FakeQueue = field(default_factory=FakeQueue)
    keys: FakeKeys = field(default_factory=FakeKeys)
    tokens: FakeTokens = field(default_factory=FakeTokens)
    ended: list[str] = field(default_factory=list)
    """Rows of accounting, as sacct prints them."""
    unsent: str = "0"
    """How many messages slurmctld has not sent to slurmdbd; empty: it does not answer."""
    accounting_reads: list[tuple[int, int]] = field(default_factory=list)
    """The periods that were read from accounting."""
    requeues: set[int] = field(default_factory=set)
    """Jobs that Slurm requeues when their node goes down; it ends the others."""
    on_drain: Callable[[], None] | None = None
    """What happens after a node was drained."""
    on_delete: Callable[[], None] | None = None
    """What happens after a node was deleted."""
    on_jobs_read: Callable[[str], None] | None = None
    """What happens, with the name of the node, immediately before the jobs on a node are read."""
    script: str = ""
    """The script that runs now."""
    stopped_units: set[str] = field(default_factory=set)
    """Units of systemd that are not active, until they are restarted."""

    closed: dict[str, str] = field(default_factory=dict)
    """Partition -> the state that it was given since slurmctld read its configuration."""
    versions: dict[str, str] = field(default_factory=dict)
    """Node -> the version that its slurmd registered with."""
    version: str = "24.11.5"
    """The version of slurmctld."""
    next_job_id: int = 0
    bundles: dict[str, str] = field(default_factory=dict)
    """Digest -> the index of a bundle that the platform has placed."""
    backed_up: list[FakeJob] = field(default_factory=list)
    """The queue in the backup."""
    nodes_backed_up: tuple[dict[str, list[str]], dict[str, str]] = field(default_factory=lambda: ({}, {}))
    """The nodes in the backup, and the reasons of their drains."""
    direct: str = ""
    """What machines print that are asked directly."""
    clock_off_s: int = 0
    """How far the clocks of machines are ahead that are asked for their time: the machine of slurmctld."""

    def answer_script(self, text: str) -> Ran | None:
        """Return what scripts print that read a machine; None for those that have arguments or change one."""
        self.script = text
        if observed.DIRECT_LOOK in text:
            return Ran(0, self.direct, "")
        if text == shell.grouped(observed.CLOCK):
            return Ran(0, f"{int(time.time()) + self.clock_off_s}\n", "")
        if footprint.END_STEPS in text:
            self.changes.append("end steps")
        if self.on_uninstall and uninstall.STOP in text:
            self.on_uninstall()
        if self.uninstall_fails and uninstall.STOP in text:
            return Ran(1, "", "Failed to connect to bus")
        return Ran(0, FACTS, "") if facts.SCRIPT in text else None

    def answer(self, argv: tuple[str, ...], machine: str = "gpu-1") -> Ran:
        """Answer a command on this machine."""
        match argv:
            case ("timeout", _, "scontrol", "ping"):
                return Ran(0, f"Slurmctld(primary) at gpu-1 is {'UP' if self.is_up else 'DOWN'}\n", "")
            case ("timeout", "--kill-after=5", _, "srun", *arguments):
                return self._first_job(arguments)
            case ("scontrol" | "squeue" | "scancel", *_) if not self.is_up:
                return AWAY
            case ("scontrol", "show", "nodes", "--json"):
                return _json(nodes=[self._node(name) for name in sorted(self.nodes)])
            case ("sh", "-c", queue.SUBMIT, _, *options):
                return self._submit(options)
            case ("scontrol", "token", username, lifespan):
                return self.tokens.made(username, lifespan)
            case ("sh", "-c", rest.WRITE, _, name):
                return self.tokens.written(name)
            case ("sh", "-c", queue.LOGS, _, path, lines, _):
                return self.queue.output(path, lines)
            case ("sacct", "-Xnp", delimiter, "--expand-patterns", "-j", job_id, *_):
                return self.queue.accounting(job_id, delimiter.removeprefix("--delimiter="))
            case ("scontrol", "show", "reservations", "--json"):
                return self.queue.shown_reservations()
            case ("scontrol", "create", "reservation", *words):
                return self.queue.reserve(words)
            case ("scontrol", "delete", name) if name.startswith("reservationname="):
                return self.queue.remove(name.removeprefix("reservationname="))
            case ("scontrol", "update", name, _, features) if features.startswith("activefeatures="):
                labels = features.removeprefix("activefeatures=").split(",")
                self.queue.features[name.removeprefix("nodename=")] = labels
                return OK
            case ("squeue", "--json", *filters) if filters and filters[0].startswith("--"):
                listed = [job.as_json() for job in self.jobs]
                return _json(jobs=[job for job in listed if fake_queue.matches(job, filters)])
            case ("squeue", "--json", "-w", name, *_):
                if self.on_jobs_read:
                    self.on_jobs_read(name)
                return _json(jobs=[job.as_json() for job in self.jobs if job.node == name])
            case nodes.COUNT:
                return Ran(0, "".join(f"{job.job_id}\n" for job in self.jobs), "")
            case ("squeue", "--json") if self.queue_fails_at_close and "down" in self.closed.values():
                return Ran(1, "", "slurm_load_jobs error: Invalid argument")
            case ("squeue", "--json"):
                return _json(jobs=[job.as_json() for job in self.jobs])
            case ("scontrol", "update", partition, change) if partition.startswith("partitionname="):
                return self._set_partition(partition.removeprefix("partitionname="), change.removeprefix("state="))
            case ("scontrol", "show", "partition", "-o"):
                return Ran(0, "".join(f"{line}\n" for line in self._partition_lines()), "")
            case ("scontrol", "update", name, change, *reason):
                return self._set_node(name.removeprefix("nodename="), change.removeprefix("state="), reason)
            case ("scontrol", "delete", name):
                return self._delete(name.removeprefix("nodename="))
            case ("scontrol", "reboot", *words, name):
                return self._reboot(name, words)
            case ("scontrol", "requeue", job_id):
                return self._requeue(int(job_id))
            case ("scancel", *jobs):
                self.jobs = [job for job in self.jobs if str(job.job_id) not in jobs or self._is_dead(job.node)]
            case ("timeout", _, "sacctmgr", "-nP", "show", "cluster", *_):
                return Ran(0, f"{CLUSTER_NAME}\n", "")
            case ("systemctl", "is-active", "-q", unit):
                return Ran(3, "", "") if unit in self.stopped_units else OK
            case ("systemctl", "is-active", "slurmd"):
                return self._state_of_slurmd()
            case ("systemctl", "restart", unit):
                self.stopped_units.discard(unit)
            case ("systemctl", "stop", "slurmd"):
                self.changes.append("stop slurmd")
            case ("bash", "-seuo", "pipefail", "--", since, until) if job_records.READ in self.script:
                return self.accounting_rows(int(since), int(until))
            case ("bash", "-seuo", "pipefail", "--", *words) if people.HOMES in self.script:
                return self.accounting.accounts(words)
            case ("bash", "-seuo", "pipefail", "--", *words) if users.USERS in self.script:
                return self.accounting.ensure(words, machine)
            case ("bash", *_) if users.LIST in self.script:
                return Ran(0, "\n".join(self.accounting.listed(machine)), "")
            case ("sacctmgr", "-nP" | "-i", *words):
                return self.accounting.answer([word for word in words if word != "-Q"])
            case ("squeue", "-h", "-o", "%u|%i", "-u", names):
                return Ran(0, "".join(f"{job.user}|{job.job_id}\n" for job in self.jobs if job.user in names), "")
            case ("find", *_):
                return Ran(0, "\n".join(self.receipts), "")
        return OK

    def _state_of_slurmd(self) -> Ran:
        if not self.slurmd_stays:
            return Ran(3, "inactive\n", "")
        self.slurmd_stays -= 1
        return Ran(3, "deactivating\n", "")

    def _submit(self, options: Sequence[str]) -> Ran:
        ran = self.queue.submit(options)
        if ran.exit_status == 0:
            self.jobs.append(FakeJob(int(ran.stdout), node="", comment=fake_queue.comment_of(options)))
        return ran

    def accounting_rows(self, since: int, until: int) -> Ran:
        self.accounting_reads.append((since, until))
        rows = [row for row in self.ended if int(row.split("|")[5]) < until and not _is_before(row, since)]
        return Ran(0, "\n".join([str(int(time.time())), self.unsent or "unknown", *rows]) + "\n", "")

    def _node(self, name: str) -> dict[str, Any]:
        version = self.versions.get(name, "")
        shown = {"name": name, "state": self.nodes[name], "reason": self.reasons.get(name, ""), "version": version}
        return shown | {"active_features": self.queue.features.get(name, ["worker"])}

    def _is_dead(self, name: str) -> bool:
        """A node without slurmd cannot end its jobs."""
        return bool(NODE_FAULTS & set(self.nodes.get(name, [])))

    def _first_job(self, arguments: Sequence[str]) -> Ran:
        nodes = next(argument for argument in arguments if argument.startswith("--nodelist="))
        names = nodes.removeprefix("--nodelist=").split(",")
        asked = [word.removeprefix("--partition=") for word in arguments if word.startswith("--partition=")]
        if missing := [name for name in asked if f"\nPartitionName={name} " not in f"\n{self.conf}"]:
            return Ran(1, "", f"srun: error: invalid partition specified: {missing[0]}")
        if self.jobs_end_with_first_job:
            self.jobs = [job for job in self.jobs if job.node not in names]
            self.nodes |= {name: ["IDLE"] for name in names}
        if self.first_job_waits:
            return Ran(124, "", "")
        if self.on_first_job:
            self.on_first_job()
        if not self.first_job_answers:
            return Ran(1, "", "srun: job is queued and waits for resources")
        self.first_jobs_on += names
        return Ran(0, "\n".join(names), "")

    def load(self, text: str) -> Ran:
        """Read a slurm.conf, as `scontrol reconfigure` does. If it is refused, the one before stays in use."""
        if self.ends_times and self.ends_at in text:
            self.ends_times -= 1
            self.is_up = False
            return Ran(1, "", "slurm_reconfigure error: Zero Bytes were transmitted or received")
        if self.refuses and self.refuses in text:
            return Ran(1, "", f"slurm_reconfigure error: {self.refuses} is not valid")
        self.conf = "\n".join(line for line in text.splitlines() if not self.ignores or self.ignores not in line)
        self.closed.clear()
        return OK

    def shown_config(self) -> str:
        lines = [line for line in self.conf.splitlines() if re.match(r"\w+=", line) and " " not in line]
        shown = [line.replace("Fairshare=", "FairShare=") for line in lines]  # as Slurm prints it
        return "".join(line.replace("=", " = ", 1) + "\n" for line in shown)

    def _partition_lines(self) -> list[str]:
        lines = [line for line in self.conf.splitlines() if line.startswith("PartitionName=")]
        shown = [line if "PriorityTier=" in line else f"{line} {TIER}" for line in lines]
        if not lines:  # a cluster that was not deployed by a test has no slurm.conf
            shown = [f"PartitionName={name} State=UP {TIER}" for name in {"main", *self.closed}]
        return [line.replace("State=UP", f"State={self._state(line)}") for line in shown]

    def _state(self, line: str) -> str:
        return self.closed.get(line.split()[0].removeprefix("PartitionName="), "UP")

    def _set_partition(self, name: str, state: str) -> Ran:
        self.partition_states.append(state)
        self.closed[name] = state
        if state in ("down", "inactive", "INACTIVE"):
            self.jobs += self.jobs_at_close
        return OK

    def register(self, name: str, role: str = "worker") -> None:
        """Have slurmd register, as it does when its machine starts. A drain stays, and the role of the first time."""
        known = self.queue.features.setdefault(name, [role])
        fault = set() if role in known else {"DRAIN", "INVALID_REG"}
        self.nodes[name] = sorted({"IDLE"} | fault | ({"DRAIN"} & set(self.nodes.get(name, []))))

    def _set_node(self, name: str, state: str, reason: list[str]) -> Ran:
        self.changes.append(f"{state} {name}")
        flags = set(self.nodes[name]) - {"DRAIN"}
        if state == "drain" and self.drains_to_forget:
            self.drains_to_forget -= 1
        elif state == "drain":
            flags.add("DRAIN")
            self.reasons[name] = reason[0].removeprefix("reason=")
            if self.on_drain:
                self.on_drain()
        elif state == "down":
            flags = {"DOWN", "DRAIN"}
            self._end_jobs_on(name)
        self.nodes[name] = sorted(flags)
        return OK

    def _reboot(self, name: str, words: list[str]) -> Ran:
        """Note that the machine restarts when its jobs have ended. With ASAP, Slurm drains the node until then."""
        self.changes.append(f"reboot {name}")
        self.nodes[name] = sorted({*self.nodes[name], "REBOOT_REQUESTED", *({"DRAIN"} if "ASAP" in words else ())})
        for word in words:
            if word.startswith("reason="):
                self.reasons[name] = word.removeprefix("reason=")
        return OK

    def _requeue(self, job_id: int) -> Ran:
        if job_id not in self.requeues:
            return Ran(1, "", "Requested operation is presently disabled")
        for job in self.jobs:
            if job.job_id == job_id:
                job.node = ""
        return OK

    def _end_jobs_on(self, name: str) -> None:
        for job in self.jobs:
            if job.node == name and job.job_id in self.requeues:
                job.node = ""
        self.jobs = [job for job in self.jobs if job.node != name]

    def _delete(self, name: str) -> Ran:
        if any(job.node == name for job in self.jobs):
            return Ran(1, "", "slurm_update error: Requested node state is busy")
        self.changes.append(f"delete {name}")
        self.nodes.pop(name, None)
        self.queue.features.pop(name, None)
        if self.on_delete:
            self.on_delete()
        return OK


class SlurmMachines(FakeMachines):
    """Machines of a cluster. Slurm's commands have the same result on all of them; each has its own Unix accounts."""

    def __init__(self, slurm: FakeSlurm) -> None:
        super().__init__()
        self._slurm = slurm

    def host(self, name: str) -> FakeHost:
        answer = partial(self._slurm.answer, machine=name)
        return self.by_host.setdefault(name, FakeHost(name, answer, self._slurm.answer_script))


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

    async def act(self, action: str, *, by: str = "test", **inputs: Any) -> Any:
        """Run an action for this user and return its operation after its end."""
        operation = self.platform.invoke(self.instance, action, inputs, requested_by=by)
        return await self.platform.ended(operation.operation_id)

    async def started(self, kind: Any, targets: Sequence[Member] | None = None, **options: Any) -> str:
        """Request an operation and return its id."""
        role = targets[0].component_key if targets else ""
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
async def deployed_cluster(
    *workers: str,
    settings: Settings = SETTINGS,
    permissions: Collection[str] = CONTROLLER_KEYS,
    repairs_per_hour: int = 20,
    age_s: float = 0,
    gauges: Gauges | None = None,
) -> AsyncIterator[Cluster]:
    """Run the app's controller for a cluster of gpu-1 and these workers; gpu-2 if none is given. It was created
    `age_s` ago."""
    names, app = workers or ("gpu-2",), controller.build(settings)
    slurm = FakeSlurm(nodes={name: ["IDLE"] for name in names})
    steward = StewardSpec(requests_per_hour=repairs_per_hour)
    platform = FakePlatform("slurm", steward=steward, permissions=permissions)
    machines = SlurmMachines(slurm)
    inputs = {"cluster_name": CLUSTER_NAME, "controller_allocation_id": "alloc_gpu-1"}
    members = {"controller": ["gpu-1"], "worker": names}
    instance = platform.add_instance(members, topology="split", inputs=inputs, ready=True)
    platform.records.manifests[instance.app_version] = app.manifest
    created_at = instance.created_at - datetime.timedelta(seconds=age_s)
    platform.records.instances[instance.instance_id] = msgspec.structs.replace(instance, created_at=created_at)
    cluster = Cluster(slurm, platform, machines, instance)
    async with running(app, cluster, gauges):
        yield cluster


@contextlib.asynccontextmanager
async def running(app: App, cluster: Cluster, gauges: Gauges | None = None) -> AsyncIterator[None]:
    """Run the app's controller. With `gauges`, it measures what it looks at."""
    platform, settings, connect = cluster.platform, RunnerSettings(claim_wait_s=1), cluster.machines.connect
    async with platform.serve() as client:
        runner = app.runner(client, platform.project_id, "test", settings=settings, connect=connect, gauges=gauges)
        task = asyncio.create_task(runner.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _is_before(row: str, since: int) -> bool:
    end = row.split("|")[7]
    return end.isdigit() and int(end) < since


def _json(**content: Any) -> Ran:
    return Ran(0, json.dumps(content), "")


def _number(value: int) -> dict[str, Any]:
    return {"set": bool(value), "infinite": False, "number": value}
