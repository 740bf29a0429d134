"""What an app team writes for the conformance kit: how its software behaves on a simulated machine, and how to look at
its effects there."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuaas_sdk.conformance import doors
from gpuaas_sdk.conformance.machines import SimulatedMachine
from gpuaas_sdk.machine import Ran

_ID = re.compile(r"\b(inst|mem|op|alloc|sec|dlv|cor)_[0-9a-z_]*[0-9][0-9a-z]*")


@dataclass(frozen=True)
class SimulatedPackage:
    """A Debian package that the package source of simulated machines offers.

    SimulatedPackage("3.5-1", source="kv", units=("kv.service",))"""

    version: str
    source: str = ""
    """The source package of Debian that it is built from."""
    units: tuple[str, ...] = ()


class Driver:
    """The eyes and hands of the conformance kit on the app's machines. Override what your app needs.

    A method that returns None has no answer, and the checks that need it are not applicable.

    class KvDriver(Driver):
        def serves(self, machine: SimulatedMachine) -> bool:
            return "kv.service" in machine.units"""

    inputs: Mapping[str, Any] = {}
    """The inputs of the deploy form, without the machines of each role."""
    topology: str = ""
    """The topology of a deploy; empty: the first of the manifest."""
    counts: Mapping[str, int] = {}
    """How many members of each role a deploy has; by default the role's minimum, or 1."""
    changed_inputs: Mapping[str, Any] = {}
    """Inputs that a `reconfigure` sets; empty: it is left out."""
    actions: Mapping[str, Mapping[str, Any]] = {}
    """Inputs of actions by name. Actions that are not listed and need inputs are left out."""
    artifacts: Mapping[str, bytes] = {}
    """The content of artifacts that the manifest names, or that a released version names."""
    packages: Mapping[str, SimulatedPackage] = {}
    """Packages that the app installs with `gpuaas_sdk.installs`, by name. The package tools are then simulated."""
    runbook: Path | None = None
    """The page that people read when an operation of the app fails."""
    patience_s: float = 60.0
    """How long an operation may take before the check fails."""
    silent_s: float = 20.0
    """How long the app may leave people without a sign: a wait that is not shown, a condition that is not reported."""

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        """Return the result of a command of the app's software. None: files and systemctl are simulated already."""
        return None

    def offer(self, machine: SimulatedMachine, version: str) -> None:
        """Let the package source of the machine have what belongs to this version of the app from now on. The kit calls
        it before a deploy, an upgrade and a rollback."""

    def prints(self, machine: SimulatedMachine, argv: tuple[str, ...]) -> str | None:
        """Return the line that a Python program of `Machine.lines` or `Reconciliation.sample` prints now. It is asked
        again every second, as long as the controller reads. None: it is not such a program of the app, or it ends."""
        return None

    def serves(self, machine: SimulatedMachine) -> bool | None:
        """Return whether the app works for its users on this machine."""
        return None

    def version(self, machine: SimulatedMachine) -> str | None:
        """Return the version of the software that runs on this machine."""
        return None

    def begin_work(self, machine: SimulatedMachine) -> bool | None:
        """Start a piece of work of a user. Return False if the machine accepts none now."""
        return None

    def end_work(self, machine: SimulatedMachine) -> None:
        """End all work on the machine, as its users do."""

    def work(self, machine: SimulatedMachine) -> int:
        """Return how many pieces of work run on the machine."""
        return 0

    def state(self, machine: SimulatedMachine) -> dict[str, str]:
        """Return what the app has on the machine, for a comparison of two runs. They differ in the ids of the platform,
        also in names of files, and in the address of a machine that was prepared before a member moved to it."""
        texts = {path: content.decode(errors="replace") for path, content in machine.files.items()}
        files = {_comparable(path, machine): _comparable(text, machine) for path, text in texts.items()}
        packages = {f"package {name}": version for name, version in machine.packages.items()}
        return files | packages | {f"unit {name}": state for name, state in machine.units.items()}


def _comparable(text: str, machine: SimulatedMachine) -> str:
    """Return the text without what differs between two runs. The address of a member is the name of its machine in the
    fake platform, but that of the SSH server while the member moves. Pure."""
    return _ID.sub(r"\1_*", text).replace(doors.ADDRESS, machine.name)
