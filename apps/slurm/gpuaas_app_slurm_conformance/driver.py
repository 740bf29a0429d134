"""How the conformance kit looks at Slurm: the fake Slurm answers on the kit's simulated machines, to a controller that
is a real process."""

import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuaas_app_slurm.controller import app
from gpuaas_app_slurm.workload import config, footprint, keys
from gpuaas_sdk.conformance import Driver, SimulatedMachine
from gpuaas_sdk.machine import Ran, shell

from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, FakeJob, FakeSlurm
from gpuaas_app_slurm_conformance.fresh_machines import VERSION, Faults, FreshHost

COMMAND = (str(Path(sys.executable).with_name("gpuaas-slurm")),)
"""The program of the app."""
QUICK_COMMAND = (sys.executable, "-m", "gpuaas_app_slurm_conformance.quick")
"""The same with shorter waits."""
RUNBOOK = Path(__file__).with_name("runbook.md")
"""Where the wheel has it; in a clone it is among the documentation of the app."""
OF_THE_KIT = (shell.GET, shell.GET_ALL, shell.PUT, shell.PUT_ALL)
FILE_PROGRAMS = ("cat", "chmod", "chown", "install", "ls", "mkdir", "rm", "test", "touch")
"""The kit's machines read, write and delete their files themselves."""
SIMULATION = "simulation"
TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z?")
NEWER = "25.05.3"
"""The Slurm to which an upgrade moves the cluster."""


@dataclass(repr=False)
class Simulation:
    """The Slurm and the machines of one check. The kit compares facts about them, which the driver writes."""

    slurm: FakeSlurm = field(default_factory=lambda: FakeSlurm(is_up=False))
    hosts: dict[str, FreshHost] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)

    def __repr__(self) -> str:
        return "Slurm"

    @property
    def is_installed(self) -> bool:
        return any(host.installed for host in self.hosts.values())

    def forget(self) -> None:
        """Forget the cluster. The last machine has lost its packages, and with them the state of Slurm."""
        self.slurm = FakeSlurm(is_up=False)
        for host in self.hosts.values():
            host.join(self.slurm)


class SlurmDriver(Driver):
    """All machines of one check have one Slurm."""

    inputs, topology = {"cluster_name": CLUSTER_NAME, "rest_api": True}, "split"
    counts = {"worker": 2, "login": 1}
    changed_inputs = {
        "max_time": "3-00:00:00",
        "partitions": [{"name": "short", "default_time": "00:10:00", "max_time": "01:00:00"}],
    }
    actions = {
        "users.add": {"names": ["grace"]},
        "users.remove": {"names": ["grace"]},
        "users.limits": {"login": "researcher", "max_jobs": 5},
        "queue.submit": {"script": "#!/bin/sh\nhostname\n", "name": "first"},
        "queue.cancel_any": {"jobs": ["101"]},
        "reservation.create": {"name": "course", "minutes": 60, "users": ["researcher"], "node_count": 1},
        "reservation.remove": {"name": "course"},
    }
    patience_s, silent_s = 300.0, 120.0
    runbook = RUNBOOK if RUNBOOK.exists() else Path(__file__).parents[1] / "docs/runbook.md"

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if argv[0] in FILE_PROGRAMS or (argv[2:3] and argv[2] in OF_THE_KIT):
            return None
        simulation, host = self._simulation(machine), self._host(machine)
        was_installed = simulation.is_installed
        if argv[:2] == ("bash", "-seuo"):
            ran = host._answer_script(data.decode(), argv[4:])
        else:
            ran = host._answer_command(argv)
        self._show(machine, host)
        if was_installed and not simulation.is_installed:
            simulation.forget()
        return ran

    def offer(self, machine: SimulatedMachine, version: str) -> None:
        newest = NEWER if version == app.manifest.version else VERSION
        self._simulation(machine).faults.packaged_version = newest

    def prints(self, machine: SimulatedMachine, argv: tuple[str, ...]) -> str | None:
        """The watch of a cluster."""
        return json.dumps(watched(self._host(machine).hostname, self._simulation(machine)))

    def serves(self, machine: SimulatedMachine) -> bool | None:
        return bool(self._host(machine).active & {"slurmd", "slurmctld"})

    def version(self, machine: SimulatedMachine) -> str | None:
        host = self._host(machine)
        return host.slurm_version.split("-")[0] if host.installed else None

    def begin_work(self, machine: SimulatedMachine) -> bool | None:
        slurm, host = self._slurm(machine), self._host(machine)
        if "slurmd" not in host.active or slurm.nodes.get(machine.name) != ["IDLE"]:
            return False
        if "worker" not in slurm.queue.features.get(machine.name, ()):
            return False  # a login machine has a slurmd too, and is in no partition
        slurm.jobs.append(FakeJob(len(slurm.jobs) + 1000, node=machine.name))
        return True

    def end_work(self, machine: SimulatedMachine) -> None:
        slurm = self._slurm(machine)
        slurm.jobs = [job for job in slurm.jobs if job.node != machine.name]

    def work(self, machine: SimulatedMachine) -> int:
        return sum(job.node == machine.name for job in self._slurm(machine).jobs)

    def state(self, machine: SimulatedMachine) -> dict[str, str]:
        """Keys are random, so it only matters that they are those of the cluster. Notes of an upgrade have times. While
        slurmctld moves, the address of its machine is that of the SSH server, which all machines have. Of the list with
        which edits are noticed, it matters whether it fits the files."""
        simulation = self._simulation(machine)
        ours = {content for host in simulation.hosts.values() for content in host.keys_of_controller()}
        shown = {name: TIME.sub("TIME", text) for name, text in super().state(machine).items()}
        for path in {keys.SLURM_KEY, keys.KEY_SET} & machine.files.keys():
            shown[path] = "as on the controller machine" if machine.files[path] in ours else "another key"
        if text := shown.get(footprint.FILES_LIST):
            shown[footprint.FILES_LIST] = "\n".join(_listed(machine, line) for line in text.splitlines())
        for head in [name for name, host in simulation.hosts.items() if "slurmctld" in host.installed][-1:]:
            if text := shown.get(config.SLURMD_UNIT_PATH):
                shown[config.SLURMD_UNIT_PATH] = text.replace(f"server {machine.name}:", f"server {head}:")
        return shown

    def _show(self, machine: SimulatedMachine, host: FreshHost) -> None:
        """Show what a command changed where the kit looks: on the machine, and in what the machines agree on."""
        machine.units = {f"{unit}.service": "active" for unit in sorted(host.active)}
        machine.starts = Counter(f"{start.split()[0]}.service" for start in host.started)
        machine.packages = {name: host.version_of(name) for name in sorted(host.installed)}
        simulation = machine.network[SIMULATION]
        machine.network.clear()
        machine.network |= {SIMULATION: simulation, **facts(simulation.slurm)}

    def _slurm(self, machine: SimulatedMachine) -> FakeSlurm:
        return self._simulation(machine).slurm

    def _host(self, machine: SimulatedMachine) -> FreshHost:
        simulation = self._simulation(machine)
        if machine.name not in simulation.hosts:
            simulation.hosts[machine.name] = FreshHost(machine.name, simulation.slurm, simulation.faults)
        host = simulation.hosts[machine.name]
        host.files = machine.files
        return host

    def _simulation(self, machine: SimulatedMachine) -> Simulation:
        simulation: Simulation = machine.network.setdefault(SIMULATION, Simulation())
        return simulation


def facts(slurm: FakeSlurm) -> Mapping[str, str]:
    """Return what commands can change in Slurm itself. What it only counts or remembers for tests is not among it."""
    nodes = {f"node {name}": f"{flags} {slurm.reasons.get(name, '')}" for name, flags in slurm.nodes.items()}
    labels = {f"labels of {name}": str(values) for name, values in slurm.queue.features.items()}
    closed = {f"partition {name}": state for name, state in slurm.closed.items()}
    users = {f"user {name}": str(limits) for name, limits in slurm.accounting.users.items()}
    submitted = {f"submitted job {number}": "" for number, _ in enumerate(slurm.queue.submitted)}
    reservations = {f"reservation {name}": "" for name in slurm.queue.reservations}
    return {**nodes, **labels, **closed, **users, **submitted, **reservations, "slurmctld": slurm.conf}


def watched(name: str, simulation: Simulation) -> dict[str, Any]:
    """Return what the watch prints on the machine of this name. All reports are new, and no file has drifted."""
    slurm, users = simulation.slurm, simulation.slurm.accounting.users
    head = simulation.hosts[name]
    reports = {host: _report(machine) for host, machine in simulation.hosts.items()}
    is_up = "slurmctld" in head.active and slurm.is_up
    return {
        "ping": f"Slurmctld(primary) at {name} is {'UP' if is_up else 'DOWN'}",
        "accounting": CLUSTER_NAME if "slurmdbd" in head.active else "",
        "version": slurm.version,
        "own": reports[name],
        "associations": "\n".join(f"{user}|{limits.get('GrpSubmitJobs', '')}" for user, limits in users.items()),
        "nodes": [_node(node, slurm, reports[node]) for node in slurm.nodes] if is_up else None,
    }


def _node(name: str, slurm: FakeSlurm, report: dict[str, Any]) -> dict[str, Any]:
    shown = {"name": name, "flags": slurm.nodes[name], "reason": slurm.reasons.get(name, ""), "cpus": 4}
    return {**shown, "version": slurm.versions.get(name, ""), "memory_mb": 8000, **report}


def _listed(machine: SimulatedMachine, line: str) -> str:
    """Return a line of `sha256sum`, without the sum if it is that of the present file."""
    listed, _, path = line.partition("  ")
    return path if path in machine.files and _sum(machine.files[path]) == listed else line


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _report(host: FreshHost) -> dict[str, Any]:
    key = _sum(host.files.get(keys.SLURM_KEY, b""))[:8]
    units = {unit: ("active", 0) for unit in sorted(host.active)}
    rotation = "runs" if keys.KEY_SET in host.files else ""
    report = {"units": units, "key": key, "rotation": rotation, "package": host.slurm_version}
    return {"is_stale": False, "report": report}
