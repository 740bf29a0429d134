"""Simulated machines without SSH, for tests of an app's handlers in one process: faster than a check of the kit, and a
test can look at everything."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from gpuaas_sdk.conformance import installs
from gpuaas_sdk.conformance.driver import Driver
from gpuaas_sdk.conformance.machines import SimulatedMachine
from gpuaas_sdk.conformance.orders import as_bytes
from gpuaas_sdk.controller import App, RunnerSettings
from gpuaas_sdk.machine import Command, Completed, Machine, MachineTarget, MachineUnreachable
from gpuaas_sdk.testing import FakePlatform

USER = "op_1.1"
"""The access under which commands arrive."""


class DirectMachines:
    """Simulated machines by name, on which the driver's software runs. The first use of a name creates the machine.

    machines = DirectMachines(HelloDriver())
    async with machines.working(app, platform):
        ended = await platform.ended(platform.request(instance, "deploy").operation_id)"""

    def __init__(self, driver: Driver) -> None:
        self.by_name: dict[str, SimulatedMachine] = {}
        self.network: dict[str, Any] = {}
        """What the driver keeps for all machines together."""
        self.silent: set[str] = set()
        """The machines that do not answer."""
        self._respond = installs.responder(driver)

    def machine(self, name: str) -> SimulatedMachine:
        """Return the machine of this name."""
        if name not in self.by_name:
            self.by_name[name] = SimulatedMachine(name, self._respond, network=self.network)
        return self.by_name[name]

    @property
    def argv(self) -> list[tuple[str, ...]]:
        """Every command on every machine, with the text of scripts."""
        return [(*order.argv, order.script) for machine in self.by_name.values() for order in machine.ordered]

    @contextlib.asynccontextmanager
    async def working(self, app: App, platform: FakePlatform) -> AsyncIterator[None]:
        """Let a controller of the app work."""

        @contextlib.asynccontextmanager
        async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
            yield Machine(_Direct(self, target.host))

        async with platform.serve() as client:
            settings = RunnerSettings(claim_wait_s=1)
            runner = app.runner(client, platform.project_id, "test", settings=settings, connect=connect)
            running = asyncio.create_task(runner.run())
            try:
                yield
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running


class _Direct:
    """A transport that runs commands on the simulated machine."""

    def __init__(self, machines: DirectMachines, name: str) -> None:
        self.hostname = self.address = name
        self._machines = machines

    async def execute(self, command: Command) -> Completed:
        if self.hostname in self._machines.silent:
            raise MachineUnreachable(self.hostname, self.hostname, "no route to host")
        ran = await self._machines.machine(self.hostname).execute(command.argv, USER, command.input)
        return Completed(ran.exit_status, as_bytes(ran.stdout), as_bytes(ran.stderr))

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        yield (await self.execute(command)).stdout.decode()
