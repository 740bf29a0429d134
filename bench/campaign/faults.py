"""What goes wrong: processes of the control plane, machines, networks and the daemons of Slurm; and how each heals.

A fault notes the machines whose jobs it may end, and until when: their end is then not the fault of an operation."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from gpuaas_lab.errors import LabError

from bench.campaign.cluster import HEAD, PROCESSES, Cluster

GRACE_S = 120.0
"""Slurm ends the jobs of a node up to so long after a fault: its SlurmdTimeout of 60 s, and its own ways."""
FORGOTTEN_S = 20.0
"""slurmctld saves its state with a delay: what is younger than this may be forgotten by a crash."""
NOTICED_S = 60.0
"""So long the app may take to notice that a drain was forgotten, on a busy host."""
MACHINE = {"power cut": ("kill", "start"), "freeze": ("freeze", "thaw"), "network cut": ("cut", "heal")}
HEAD_DAEMONS = ("mariadb", "slurmdbd", "slurmctld")
"""In the order in which they start."""


@dataclass
class Harm:
    """A time in which a fault may end jobs. Without machines, slurmctld crashed, and may have forgotten the last jobs:
    it then ends them, or starts them a second time, which slurmd refuses by cancelling them as root."""

    what: str
    machines: frozenset[str]
    began_s: float
    ended_s: float | None = None

    def covers(self, machines: frozenset[str], start_s: float, end_s: float) -> bool:
        """Return whether it may have ended a job on these machines that ran from start to end."""
        until_s = (self.ended_s or time.time()) + GRACE_S
        return bool(self.machines & machines) and start_s <= until_s and end_s >= self.began_s - 2

    def made_forgotten(self, submit_s: float, start_s: float) -> bool:
        """Return whether slurmctld may have forgotten the job, or its start, or its end."""
        ended_s = self.ended_s or time.time()
        return not self.machines and submit_s <= ended_s and start_s >= self.began_s - FORGOTTEN_S


@dataclass(frozen=True)
class Fault:
    name: str
    place: str
    """The machine or process: only one fault at a time happens there."""
    begin: Callable[[], Awaitable[None]]
    heal: Callable[[], Awaitable[None]]
    harms: frozenset[str] | None = None
    """Machines whose jobs it may end; None: it ends no job."""


@dataclass
class Faults:
    cluster: Cluster
    harms: list[Harm] = field(default_factory=list)
    running: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Place -> the task that heals the fault there."""

    async def begin(self, fault: Fault, lasts_s: float) -> None:
        harm = None
        if fault.harms is not None:
            harm = Harm(fault.name, fault.harms, time.time())
            self.harms.append(harm)
        self.cluster.journal.note("fault", f"{fault.name} on {fault.place} for {lasts_s:.0f} s")
        try:
            await fault.begin()
        except LabError as error:
            self.cluster.journal.note("fault", f"{fault.name} on {fault.place} was not possible: {error}")
            return
        self.running[fault.place] = asyncio.create_task(self._heal_after(fault, harm, lasts_s))

    async def _heal_after(self, fault: Fault, harm: Harm | None, lasts_s: float) -> None:
        try:
            await asyncio.sleep(lasts_s)
        finally:
            await fault.heal()
            if harm:
                harm.ended_s = time.time()
            self.running.pop(fault.place, None)
            self.cluster.journal.note("healed", f"{fault.name} on {fault.place}")

    async def heal_all(self) -> None:
        tasks = list(self.running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forgot_drain(self, set_s: float, at_s: float) -> bool:
        """Return whether slurmctld may have forgotten a drain in a crash so shortly before that the app may not have
        noticed it yet."""
        crashes = [harm for harm in self.harms if not harm.machines and harm.began_s >= set_s - FORGOTTEN_S]
        return any(harm.began_s <= at_s <= (harm.ended_s or time.time()) + NOTICED_S for harm in crashes)


def of_process(cluster: Cluster, name: str, *, pause: bool = False) -> Fault:
    """kill -9 of a process of the control plane, or a pause, which for a controller lasts longer than its lease."""

    async def begin() -> None:
        cluster.signal(name, signal.SIGSTOP if pause else signal.SIGKILL)

    async def heal() -> None:
        cluster.signal(name, signal.SIGCONT)
        cluster.start(name)

    return Fault("pause" if pause else "kill -9", name, begin, heal)


def of_machine(cluster: Cluster, name: str, machine: str) -> Fault:
    down, up = MACHINE[name]

    async def begin() -> None:
        await asyncio.to_thread(_lab, cluster, down, machine)

    async def heal() -> None:
        await asyncio.to_thread(_lab, cluster, up, machine)

    everything = frozenset(cluster.machines)
    # Without slurmctld jobs continue. One that is cut off or frozen misses the nodes and ends their jobs.
    harms = frozenset({machine}) if machine != HEAD else frozenset() if name == "power cut" else everything
    return Fault(f"{name} of {machine}", machine, begin, heal, harms)


def _lab(cluster: Cluster, command: str, machine: str) -> None:
    cluster.cloud.lab(command, machine)


def of_daemon(cluster: Cluster, daemon: str, machine: str, act: str) -> Fault:
    """`act` is `kill` or `stop`. Afterwards a person starts what the app has not started yet."""

    async def begin() -> None:
        command = ["kill", "-s", "KILL", daemon] if act == "kill" else ["stop", daemon]
        await cluster.on(machine, "systemctl", *command)

    async def heal() -> None:
        members = [member for member in await cluster.members() if member.node_name == machine]
        rests = all(member.status not in ("removing", "provisioning", "joining") for member in members)
        if members and rests and await cluster.is_at_work():
            await cluster.on(machine, "systemctl", "reset-failed", daemon)
            await cluster.on(machine, "systemctl", "start", "--no-block", daemon)

    harms = {"slurmd": frozenset({machine}), "slurmctld": frozenset[str]()}.get(daemon)
    return Fault(f"{act} {daemon} of {machine}", f"{daemon} of {machine}", begin, heal, harms)


def of_agent(cluster: Cluster, machine: str) -> Fault:
    async def begin() -> None:
        await cluster.on(machine, "systemctl", "kill", "-s", "KILL", "gpuaas-agent")

    async def heal() -> None:
        await cluster.on(machine, "systemctl", "start", "--no-block", "gpuaas-agent")

    return Fault("kill -9 of the agent", f"agent of {machine}", begin, heal)


def possible(cluster: Cluster, workers: list[str]) -> list[Fault]:
    """Return every fault that can happen now, in a fixed order."""
    faults = [of_process(cluster, name) for name in PROCESSES]
    faults += [of_process(cluster, name, pause=True) for name in PROCESSES if name != "server"]
    faults += [of_daemon(cluster, daemon, HEAD, act) for daemon in HEAD_DAEMONS for act in ("kill", "stop")]
    for machine in workers:
        faults += [of_machine(cluster, name, machine) for name in MACHINE]
        faults += [of_daemon(cluster, "slurmd", machine, act) for act in ("kill", "stop")]
    faults += [of_agent(cluster, machine) for machine in workers[:2]]
    faults += [of_machine(cluster, name, HEAD) for name in MACHINE]
    return faults
