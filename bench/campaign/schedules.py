"""Random schedules of jobs, operations, cancels and faults on one cluster: 3 workers, and a machine that is free.

Each has its own seed, so that one can be repeated alone. After each, no job was ended by an operation without force,
no member was shown as drained while work ran, no removal used old evidence, and the instance runs again."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuaas_contract.errors import ApiError
from gpuaas_contract.operations import ASKING_KINDS, Operation
from gpuaas_sdk.outcomes import NoAnswer

from bench.campaign import faults as all_faults
from bench.campaign import instance_rest, invariants, rest, versions
from bench.campaign.acts import chosen
from bench.campaign.campaign import CONTROLLER_LEASE_S, Campaign
from bench.campaign.cluster import Cluster
from bench.campaign.instance_acts import InstanceActs

MACHINES, WORKERS = 5, ("gpu-2", "gpu-3", "gpu-4")
PATIENCE_S = 300.0
"""How long a request waits for an operation in progress: longer than an upgrade takes on a busy host."""
CANCELLED = 0.25
"""The part of the operations that is cancelled in progress."""
DEAD_S = 45.0
"""How long a machine is off that is replaced by force."""
MEMBER_KINDS = ("drain", "resume", "remove")
KINDS = {
    "drain": 3,
    "resume": 2,
    "remove": 1,
    "replace": 3,
    "replace dead": 1,
    "reconfigure": 3,
    "version": 5,
    "restart": 2,
    "stop": 1,
    "start": 1,
}
BESIDE_WORK = ("replace", "reconfigure", "version", "restart")
"""Before each of these another job is submitted: an act that waits for others may come after all drawn jobs ended."""
FAULTS = {
    "": 6,
    "kill slurmctld": 2,
    "kill slurmd": 2,
    "stop slurmd": 1,
    "freeze": 1,
    "network cut": 1,
    "power cut": 1,
    "kill controller": 2,
    "pause controller": 2,
    "kill server": 2,
}


@dataclass(frozen=True)
class Schedule:
    """What happens when, in seconds after its begin. Everything is drawn before it starts."""

    jobs: tuple[tuple[float, float, int, float], ...]
    """When, how long, on how many nodes, and which node: below 0.5 any."""
    acts: tuple[tuple[float, str, float], ...]
    """When, what, and which member."""
    fault: tuple[float, str, float, float]
    """When, what, where, and for how long."""


def draw(generator: random.Random, kinds: Sequence[str] = ()) -> Schedule:
    """Draw a schedule, with operations of these kinds; without any, of all."""
    jobs = tuple(
        (generator.uniform(0, 12), generator.uniform(5, 40), generator.choice((1, 1, 2)), generator.random())
        for _ in range(generator.randint(3, 6))
    )
    weights = {kind: weight for kind, weight in KINDS.items() if not kinds or kind in kinds}
    acts = tuple(act for _ in range(generator.randint(2, 4)) for act in _drawn_acts(generator, weights))
    name = generator.choices(list(FAULTS), list(FAULTS.values()))[0]
    return Schedule(jobs, acts, (generator.uniform(1, 25), name, generator.random(), generator.uniform(2, 12)))


def _drawn_acts(generator: random.Random, weights: Mapping[str, int]) -> list[tuple[float, str, float]]:
    """Draw an operation, and now and then its cancel some seconds later."""
    kind = generator.choices(list(weights), list(weights.values()))[0]
    act = (generator.uniform(0.5, 15), kind, generator.random())
    later_s, is_cancelled = generator.uniform(1, 15), generator.random() < CANCELLED
    return [act, (act[0] + later_s, "cancel", act[2])] if is_cancelled else [act]


class Schedules:
    def __init__(self, cluster: Cluster, seed: int, kinds: Sequence[str] = ()) -> None:
        self._cluster, self._seed, self._kinds = cluster, seed, kinds
        self._campaign = Campaign.of(cluster, seed)
        self._campaign.acts.patience_s = PATIENCE_S
        self._instance = InstanceActs(cluster, self._campaign.acts)

    async def run(self, count: int, minutes: float) -> int:
        """Run so many schedules, and begin none after so many minutes. Return how many were run."""
        deadline, number = time.monotonic() + minutes * 60, 0
        self._cluster.second_version = await versions.offer(self._cluster)
        watch = self._campaign.watch
        watching = [asyncio.create_task(watch.look()), asyncio.create_task(watch.follow())]
        try:
            while number < count and time.monotonic() < deadline:
                await self._one(self._seed + number)
                number += 1
                await self._count(number)
            return number
        finally:
            await self._campaign.faults.heal_all()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _one(self, seed: int) -> None:
        began_s = time.time()
        schedule = draw(random.Random(seed), self._kinds)
        kinds = "".join(f" --kind '{kind}'" if " " in kind else f" --kind {kind}" for kind in self._kinds)
        repeat = f'make bench ARGS="schedules --seed {seed} --schedules 1{kinds}"'
        self._cluster.journal.note("schedule", f"seed {seed}: {_shown(schedule)}; alone: {repeat}")
        await asyncio.gather(*(self._job(job) for job in schedule.jobs), self._acts(schedule), self._fault(schedule))
        await rest.heal(self._cluster, self._campaign.faults)
        await rest.operations_end(self._cluster)
        await instance_rest.changes_end(self._cluster, self._campaign.acts)
        await instance_rest.starts(self._cluster)
        await self._campaign.queue_ends()
        await self._check(began_s)
        await self._restore()

    async def _count(self, number: int) -> None:
        """Note how many operations of each kind succeeded so far: schedules show nothing about what was refused."""
        done = await self._cluster.all_operations()
        self._cluster.journal.note("done", f"{number} schedules: {outcomes(done)}")

    async def _job(self, job: tuple[float, float, int, float]) -> None:
        at_s, runs_s, nodes, pick = job
        await asyncio.sleep(at_s)
        machine = "" if pick < 0.7 else chosen(WORKERS, (pick - 0.7) / 0.3) or ""
        place = machine if nodes == 1 else ""
        await self._campaign.jobs.submit(runs_s, nodes, place, can_requeue=pick < 0.25)

    async def _acts(self, schedule: Schedule) -> None:
        began = time.monotonic()
        for at_s, kind, pick in sorted(schedule.acts):
            await asyncio.sleep(max(0.0, began + at_s - time.monotonic()))
            if kind in BESIDE_WORK:
                await self._campaign.jobs.submit(5 + 35 * pick, 1 + int(pick * 2))
            try:
                await self._act(kind, pick)
            except (ApiError, NoAnswer) as error:
                self._cluster.journal.note("refused", f"{kind}: {type(error).__name__} {error}")

    async def _act(self, kind: str, pick: float) -> None:
        acts = self._campaign.acts
        if kind == "cancel":
            await self._cancel(pick)
        elif kind in MEMBER_KINDS:
            await acts.change(kind, pick)
        elif kind == "replace":
            await acts.replace(pick)
        elif kind == "replace dead":
            await self._replace_dead(pick)
        else:
            await self._instance.change(kind, pick)

    async def _worker(self, pick: float) -> str:
        workers = [member.node_name for member in await self._cluster.members() if member.component_key == "worker"]
        return chosen(sorted(workers), pick) or ""

    async def _replace_dead(self, pick: float) -> None:
        """Cut the power of a worker, and replace it at once, with force."""
        machine, faults = await self._worker(pick), self._campaign.faults
        if not machine or any(machine in place for place in faults.running):
            return
        await faults.begin(all_faults.of_machine(self._cluster, "power cut", machine), DEAD_S)
        await self._campaign.acts.replace(pick, machine=machine, force=True)

    async def _cancel(self, pick: float) -> None:
        """Cancel an operation in progress."""
        listed = [item for item in await self._cluster.all_operations() if item.kind not in ASKING_KINDS]
        alive = [item for item in listed if item.status in ("accepted", "running")]
        if (item := chosen(alive, pick)) is not None:
            await self._campaign.acts.take(item, "cancel")

    async def _fault(self, schedule: Schedule) -> None:
        at_s, name, pick, lasts_s = schedule.fault
        await asyncio.sleep(at_s)
        fault = _fault(self._cluster, name, pick)
        if fault is None or fault.place in self._campaign.faults.running:
            return
        lasts_s = CONTROLLER_LEASE_S + 5 if fault.name == "pause" else lasts_s
        await self._campaign.faults.begin(fault, lasts_s)
        await asyncio.gather(*self._campaign.faults.running.values(), return_exceptions=True)

    async def _check(self, since_s: float) -> None:
        campaign = self._campaign
        done = await self._cluster.all_operations()
        await invariants.jobs_survived(self._cluster, campaign.acts, campaign.jobs, campaign.faults, since_s)
        invariants.drained_is_true(self._cluster, campaign.watch, campaign.jobs, campaign.faults, done, since_s)
        recent = [item for item in done if item.created_at.timestamp() >= since_s]
        invariants.evidence_is_fresh(self._cluster, campaign.watch, recent)

    async def _restore(self) -> None:
        """Bring the instance back to running with all workers ready, for the next schedule."""
        acts = self._campaign.acts
        await rest.members_rest(self._cluster, acts)
        await rest.machines_clean(self._cluster, acts)
        acts.left.clear()
        acts.forced.clear()
        for member in await self._cluster.members():
            if member.status == "drained":
                await rest.performed(self._cluster, "resume", member)
        members = await self._cluster.members()
        missing = max(0, 1 + len(WORKERS) - len(members))
        if free := acts.free(members)[:missing]:
            await rest.succeeds(self._cluster, kind="add", component_key="worker", allocation_ids=free)
        await instance_rest.runs(self._cluster)


def outcomes(done: Sequence[Operation]) -> str:
    """Return how many operations of each kind succeeded, of how many that were accepted. Pure."""
    accepted = Counter(item.kind for item in done if item.kind not in ASKING_KINDS)
    succeeded = Counter(item.kind for item in done if item.status == "succeeded")
    return ", ".join(f"{kind} {succeeded[kind]} of {count}" for kind, count in sorted(accepted.items()))


def _fault(cluster: Cluster, name: str, pick: float) -> all_faults.Fault | None:
    machine = chosen(cluster.machines[1:], pick) or ""
    if not name:
        return None
    if name in all_faults.MACHINE:
        return all_faults.of_machine(cluster, name, machine)
    act, place = name.split()
    if place in ("controller", "server"):
        replica = "second controller" if place == "controller" and pick < 0.5 else place
        return all_faults.of_process(cluster, replica, pause=act == "pause")
    return all_faults.of_daemon(cluster, place, "gpu-1" if place == "slurmctld" else machine, act)


def _shown(schedule: Schedule) -> str:
    acts: Sequence[str] = [f"{kind} at {at_s:.1f} s" for at_s, kind, _ in sorted(schedule.acts)]
    at_s, fault, _, _ = schedule.fault
    return ", ".join([f"{len(schedule.jobs)} jobs", *acts, *([f"{fault} at {at_s:.1f} s"] if fault else [])])
