"""How the conformance kit looks at Slurm: the fake Slurm of the app's tests answers on the kit's simulated machines, to
a controller that is a real process."""

import sys
from pathlib import Path
from typing import Any

from fake_slurm import CLUSTER_NAME, FakeJob, FakeSlurm
from fresh_machines import Faults, FreshHost
from gpuaas_sdk.conformance import Driver, SimulatedMachine
from gpuaas_sdk.machine import Ran, shell

COMMAND = (str(Path(sys.executable).with_name("gpuaas-slurm")),)
OF_THE_KIT = (shell.GET, shell.GET_ALL, shell.PUT, shell.PUT_ALL)
"""The kit's machines read and write their files themselves."""


class SlurmDriver(Driver):
    """All machines of one check have one Slurm."""

    inputs, topology = {"cluster_name": CLUSTER_NAME, "rest_api": True}, "split"
    counts = {"worker": 2, "login": 1}
    patience_s, silent_s = 300.0, 120.0
    runbook = Path(__file__).parents[1] / "docs/runbook.md"

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if argv[2:3] and argv[2] in OF_THE_KIT:
            return None
        host = self._host(machine)
        if argv[:2] == ("bash", "-seuo"):
            return host._answer_script(data.decode(), argv[4:])
        return host._answer_command(argv)

    def serves(self, machine: SimulatedMachine) -> bool | None:
        return bool(self._host(machine).active & {"slurmd", "slurmctld"})

    def version(self, machine: SimulatedMachine) -> str | None:
        host = self._host(machine)
        return host.slurm_version.split("-")[0] if host.installed else None

    def begin_work(self, machine: SimulatedMachine) -> bool | None:
        slurm, host = self._slurm(machine), self._host(machine)
        if "slurmd" not in host.active or slurm.nodes.get(machine.name) != ["IDLE"]:
            return False
        slurm.jobs.append(FakeJob(len(slurm.jobs) + 100, node=machine.name))
        return True

    def end_work(self, machine: SimulatedMachine) -> None:
        slurm = self._slurm(machine)
        slurm.jobs = [job for job in slurm.jobs if job.node != machine.name]

    def work(self, machine: SimulatedMachine) -> int:
        return sum(job.node == machine.name for job in self._slurm(machine).jobs)

    def state(self, machine: SimulatedMachine) -> dict[str, str]:
        """Units and packages are those of the fake host."""
        host = self._host(machine)
        units = {f"unit {unit}": "active" for unit in host.active}
        packages = {f"package {name}": host.slurm_version for name in host.installed}
        return super().state(machine) | units | packages

    def _slurm(self, machine: SimulatedMachine) -> FakeSlurm:
        slurm: FakeSlurm = machine.network.setdefault("slurm", FakeSlurm(is_up=False))
        return slurm

    def _host(self, machine: SimulatedMachine) -> FreshHost:
        hosts: dict[str, Any] = machine.network.setdefault("hosts", {})
        if machine.name not in hosts:
            hosts[machine.name] = FreshHost(machine.name, self._slurm(machine), Faults())
        host: FreshHost = hosts[machine.name]
        host.files = machine.files
        return host
