"""The app's handlers on simulated machines, in this process: the machines and the etcd of the conformance driver."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from gpuaas_app_etcd import controller
from gpuaas_app_etcd_conformance import EtcdDriver
from gpuaas_sdk.conformance import SimulatedMachine
from gpuaas_sdk.conformance.direct import DirectMachines
from gpuaas_sdk.controller import Instance, Member
from gpuaas_sdk.machine import Ran
from gpuaas_sdk.testing import FakePlatform


class RecordingDriver(EtcdDriver):
    """Records the changes of the membership on all machines, oldest first."""

    def __init__(self) -> None:
        self.changes: list[str] = []

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if "member" in argv and "list" not in argv:
            self.changes.append(argv[argv.index("member") + 1])
        return super().respond(machine, argv, data)


class Cluster(DirectMachines):
    """A fake platform and simulated machines by name."""

    def __init__(self) -> None:
        self.driver = RecordingDriver()
        super().__init__(self.driver)
        manifest = controller.app.manifest
        self.platform = FakePlatform("etcd", secret_purposes=manifest.secret_purposes)
        self.platform.add_version(manifest)

    def running(self) -> AbstractAsyncContextManager[None]:
        """Let a controller of the app work."""
        return self.working(controller.app, self.platform)

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

    async def preview(self, instance: Instance, kind: Any, name: str) -> Any:
        targets = [member for member in self.members(instance) if member.node_name == name]
        asked = self.platform.ask_preview(self.platform.instance(instance.instance_id), kind, targets)
        return (await self.platform.ended(asked.operation_id)).preview

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
