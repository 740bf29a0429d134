"""A campaign: random operations, exits and faults beside a stream of jobs, then everything is healed and checked."""

import asyncio
import contextlib
import random
import time
from dataclasses import dataclass

from gpuaas_contract.errors import ApiError
from gpuaas_sdk.outcomes import NoAnswer

from bench.campaign import faults as all_faults
from bench.campaign import invariants, jobs, rest
from bench.campaign.acts import Acts, chosen
from bench.campaign.cluster import HEAD, Cluster
from bench.campaign.faults import Faults
from bench.campaign.jobs import Jobs
from bench.campaign.watch import Watch

MACHINES, WORKERS = 6, ("gpu-2", "gpu-3", "gpu-4")
FAULTS_AT_ONCE = 2
CONTROLLER_LEASE_S = 15.0
QUEUE_S = jobs.LIMIT_MINUTES * 60 + 120.0
"""How long the queue may take to end. If slurmd is killed while it starts a job, Slurm can show the job as running
until its time limit."""
ACTS = {
    "job": 8,
    "job there": 2,
    "add worker": 4,
    "add login": 1,
    "drain": 4,
    "resume": 4,
    "remove": 4,
    "repair": 1,
    "dry run": 2,
    "force remove": 1,
    "exit": 6,
    "fault": 6,
}


@dataclass(frozen=True)
class Turn:
    """What is drawn for one turn. Every turn draws the same numbers, so a seed gives the same turns again."""

    act: str
    pick: float
    second: float
    runs_s: float
    lasts_s: float
    pause_s: float


def draw(generator: random.Random) -> Turn:
    return Turn(
        act=generator.choices(list(ACTS), list(ACTS.values()))[0],
        pick=generator.random(),
        second=generator.random(),
        runs_s=generator.uniform(2, 45),
        lasts_s=generator.choice((1, 3, 8, 20, 40, 80)) * generator.uniform(0.7, 1.3),
        pause_s=generator.uniform(0.2, 4.0),
    )


@dataclass
class Campaign:
    cluster: Cluster
    generator: random.Random
    jobs: Jobs
    acts: Acts
    faults: Faults
    watch: Watch

    @classmethod
    def of(cls, cluster: Cluster, seed: int) -> "Campaign":
        return cls(cluster, random.Random(seed), Jobs(cluster), Acts(cluster), Faults(cluster), Watch(cluster))

    async def run(self, seconds: float) -> None:
        watching = [asyncio.create_task(self.watch.look()), asyncio.create_task(self.watch.follow())]
        try:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline:
                await self._take(draw(self.generator))
            await rest.heal(self.cluster, self.faults)
            await rest.operations_end(self.cluster)
            # First the queue: the removal of a node that queued jobs name is refused.
            await self.queue_ends()
            await rest.members_rest(self.cluster, self.acts)
            await rest.machines_clean(self.cluster, self.acts)
            await invariants.check(self.cluster, self.acts, self.jobs, self.watch, self.faults)
        finally:
            await self.faults.heal_all()
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def _take(self, turn: Turn) -> None:
        try:
            await self._act(turn)
        except (ApiError, NoAnswer) as error:
            self.cluster.journal.note("refused", f"{turn.act}: {type(error).__name__} {error}")
        await asyncio.sleep(turn.pause_s)

    async def _act(self, turn: Turn) -> None:
        act = turn.act
        if act == "job":
            await self.jobs.submit(turn.runs_s, nodes=1 + int(turn.pick * 1.4))
        elif act == "job there":
            await self.jobs.submit(turn.runs_s, machine=chosen(self.cluster.machines[1:], turn.pick) or "")
        elif act.startswith("add "):
            await self.acts.add(act.removeprefix("add "), turn.pick)
        elif act == "dry run":
            await self.acts.change("remove" if turn.second < 0.5 else "drain", turn.pick, dry_run=True)
        elif act == "force remove":
            await self.acts.change("remove", turn.pick, force=True)
        elif act == "exit":
            await self.acts.exit(turn.pick, turn.second)
        elif act == "fault":
            await self._fault(turn)
        else:
            await self.acts.change(act, turn.pick)

    async def _fault(self, turn: Turn) -> None:
        if len(self.faults.running) >= FAULTS_AT_ONCE:
            return
        fault = chosen(all_faults.possible(self.cluster, self.cluster.machines[1:]), turn.pick)
        if fault is None or self._is_hurt(fault.place):
            return
        # A pause must be longer than the lease, otherwise it tests nothing. Nothing else works without the server.
        lasts_s = max(turn.lasts_s, CONTROLLER_LEASE_S + 5) if fault.name == "pause" else turn.lasts_s
        await self.faults.begin(fault, min(lasts_s, 10.0) if fault.place == "server" else lasts_s)

    def _is_hurt(self, place: str) -> bool:
        """Return whether a fault happens there already, or on the machine of a daemon."""
        machine = place.split()[-1]
        return any(place == other or machine == other.split()[-1] != "controller" for other in self.faults.running)

    async def queue_ends(self) -> None:
        """Jobs that wait for a node that is gone are cancelled by their user; the others end."""
        deadline = time.monotonic() + QUEUE_S
        while time.monotonic() < deadline:
            ran = await self.cluster.on(HEAD, "squeue", "-h", "-o", "%i|%T")
            with contextlib.suppress(ValueError):
                waiting = [line.split("|")[0] for line in ran.stdout.splitlines() if line.endswith("PENDING")]
                await self.jobs.cancel(set(waiting) & set(self.jobs.submitted))
            if ran.returncode == 0 and not ran.stdout.strip():
                return
            await asyncio.sleep(rest.POLL_S)
        self.cluster.journal.violated("jobs", f"the queue does not end: {ran.stdout.strip()[:300]}{ran.stderr[:200]}")
