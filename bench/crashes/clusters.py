"""The machines of one instance: simulated ones of the conformance kit, each with an SSH server at its own address.

Clusters differ in names, addresses and ids, so states and effects are shown without them: those of two clusters can be
compared."""

import asyncio
import re
from typing import Any

import asyncssh
from gpuaas_sdk.conformance import SimulatedMachine, Subject, installs
from gpuaas_sdk.conformance.doors import Door
from gpuaas_sdk.conformance.stage import States

SSH_PORT = 22
"""The platform lets controllers log in at this port only."""
_ID = re.compile(r"\b[a-z]+_[0-9a-z]{26}\b")


class Cluster:
    """One instance at a time, and its machines. The machine with the number 1 has the name n1."""

    def __init__(self, number: int, size: int, subject: Subject, key: asyncssh.SSHKey) -> None:
        self.number = number
        self.driver = subject.driver
        self.key = key
        self.instance_id = ""
        self.lives = 0
        """How many instances were deployed on the machines, one after the other."""
        self.allocation_ids: dict[str, str] = {}
        """By the name of the machine."""
        self.machines = [self._machine(position, subject) for position in range(1, size + 1)]
        network: dict[str, Any] = {}
        for machine in self.machines:
            machine.network = network
        self._doors = [self._door(machine) for machine in self.machines]

    @property
    def names(self) -> list[str]:
        return [machine.name for machine in self.machines]

    @property
    def host_key(self) -> str:
        return self.key.export_public_key().decode().strip()

    def address(self, name: str) -> str:
        return f"127.77.{self.number}.{name.rpartition('n')[2]}"

    def machine(self, name: str) -> SimulatedMachine:
        return self.machines[self.names.index(name)]

    async def open(self) -> None:
        await asyncio.gather(*(door.open() for door in self._doors))

    async def close(self) -> None:
        await asyncio.gather(*(door.close() for door in self._doors))

    def states(self) -> States:
        """Return what the app has on each machine."""
        return {
            self._comparable(machine.name): {
                self._comparable(name): self._comparable(value) for name, value in self.driver.state(machine).items()
            }
            for machine in self.machines
        }

    def effects(self) -> list[str]:
        """Return every effect of the app since the last call."""
        changes = [
            self._comparable(f"{machine.name}: {effect.what}") for machine in self.machines for effect in machine.ledger
        ]
        for machine in self.machines:
            machine.ledger.clear()
        return changes

    def _machine(self, position: int, subject: Subject) -> SimulatedMachine:
        return SimulatedMachine(
            f"c{self.number}-n{position}", installs.responder(subject.driver), subject.driver.prints
        )

    def _door(self, machine: SimulatedMachine) -> Door:
        return Door(machine.execute, self.key, self.address(machine.name), SSH_PORT, machine.line)

    def _comparable(self, text: str) -> str:
        text = re.sub(rf"\b127\.77\.{self.number}\.(\d+)", r"n\1", text)
        return _ID.sub("ID", text).replace(f"c{self.number}-n", "n")
