"""The app's handlers on simulated machines, in this process: the machines and the etcd of the conformance driver."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any

from gpuaas_app_etcd import controller
from gpuaas_app_etcd_conformance import EtcdDriver
from gpuaas_sdk.conformance import SimulatedMachine, installs
from gpuaas_sdk.conformance.orders import as_bytes
from gpuaas_sdk.controller import Instance, Member, RunnerSettings
from gpuaas_sdk.machine import Command, Completed, Machine, MachineTarget, MachineUnreachable, Ran
from gpuaas_sdk.testing import FakePlatform


class Direct:
    """A transport that runs commands on the simulated machine without SSH."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.hostname = self.address = name
        self._cluster = cluster

    async def execute(self, command: Command) -> Completed:
        if self.hostname in self._cluster.silent:
            raise MachineUnreachable(self.hostname, self.hostname, "no route to host")
        ran = await self._cluster.machine(self.hostname).execute(command.argv, "op_1.1", command.input)
        return Completed(ran.exit_status, as_bytes(ran.stdout), as_bytes(ran.stderr))

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        yield (await self.execute(command)).stdout.decode()


class Cluster:
    """A fake platform and simulated machines by name."""

    def __init__(self) -> None:
        self.driver = EtcdDriver()
        manifest = controller.app.manifest
        self.platform = FakePlatform("etcd", secret_purposes=manifest.secret_purposes)
        self.platform.add_version(manifest)
        self.silent: set[str] = set()
        self.changes: list[str] = []
        """Changes of the membership on all machines, oldest first."""
        self.network: dict[str, Any] = {}
        self._machines: dict[str, SimulatedMachine] = {}

    def machine(self, name: str) -> SimulatedMachine:
        if name not in self._machines:
            self._machines[name] = SimulatedMachine(name, self._respond, network=self.network)
        return self._machines[name]

    def _respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if "member" in argv and "list" not in argv:
            self.changes.append(argv[argv.index("member") + 1])
        return installs.responder(self.driver)(machine, argv, data)

    @property
    def argv(self) -> list[tuple[str, ...]]:
        """Every command on every machine, with the text of scripts."""
        return [(*order.argv, order.script) for machine in self._machines.values() for order in machine.ordered]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let a controller of the app work."""

        @contextlib.asynccontextmanager
        async def connect(target: MachineTarget) -> AsyncIterator[Machine]:
            yield Machine(Direct(self, target.host))

        async with self.platform.serve() as client:
            settings = RunnerSettings(claim_wait_s=1)
            runner = controller.app.runner(client, self.platform.project_id, "test", settings=settings, connect=connect)
            working = asyncio.create_task(runner.run())
            try:
                yield
            finally:
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working

    def instance(self, *names: str) -> Instance:
        form = {"member_allocation_ids": [f"alloc_{name}" for name in names]}
        return self.platform.add_instance({"member": list(names)}, topology="cluster", inputs=form)

    async def perform(self, instance: Instance, kind: Any, names: Sequence[str] = (), **options: Any) -> Any:
        """Request an operation and return it when it has ended."""
        operation = self.request(instance, kind, names, **options)
        return await self.platform.ended(operation.operation_id, timeout_s=60)

    def request(self, instance: Instance, kind: Any, names: Sequence[str] = (), **options: Any) -> Any:
        present = self.platform.instance(instance.instance_id)
        if kind == "add":
            targets = [self.platform.records.add_member(present, "member", name) for name in names]
        else:
            targets = [member for member in self.members(instance) if member.node_name in names]
        role = "member" if names else ""
        return self.platform.request(present, kind, targets or None, component_key=role, **options)

    async def act(self, instance: Instance, action: str, **inputs: str) -> Any:
        operation = self.platform.invoke(self.platform.instance(instance.instance_id), action, dict(inputs))
        return await self.platform.ended(operation.operation_id, timeout_s=60)

    def members(self, instance: Instance) -> list[Member]:
        return self.platform.members(instance)

    def statuses(self, instance: Instance) -> dict[str, str]:
        return {member.node_name: member.status for member in self.members(instance)}

    def voters(self) -> set[str]:
        """The members that etcd lists and that have a vote, by machine."""
        return {peer["name"].removeprefix("alloc_") for peer in self.network.values() if not peer["isLearner"]}
