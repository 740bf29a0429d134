"""A real Slurm cluster on lab machines: the cloud, its public API as an admin of the project, and its machines."""

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuaas_cli.client import home as contexts
from gpuaas_cli.local.processes import Process
from gpuaas_contract import instances, lifecycles, operations
from gpuaas_contract.endpoint import Endpoint
from gpuaas_lab.errors import LabError
from gpuaas_lab.lab import Lab
from gpuaas_lab.main import DEFAULT_STATE
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client

from bench.campaign.journal import Journal
from bench.campaign.parts import LocalCloud, Project, empty_cloud, machine_state

NAME = "campaign"
HEAD = "gpu-1"
USER = "researcher"
COMMAND_S = 20.0
PROCESSES = {"server": ".", "controller": "slurm", "second controller": "second"}
"""Processes of the control plane -> folder of their pid file."""


@dataclass
class Cluster:
    cloud: LocalCloud
    machines: list[str]
    lab: Lab
    project: Project
    journal: Journal
    instance_id: str = ""
    before: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each machine was made of before Slurm."""
    second_version: str = ""
    """The app version to which schedules upgrade; empty if there is none."""
    commands: dict[str, list[str]] = field(default_factory=dict)
    """Command lines of the processes, to start them again."""

    async def members(self, *, live: bool = True) -> list[instances.Member]:
        listed = await self.project.members(self.instance_id)
        return [item for item in listed if not live or item.status not in lifecycles.GONE_MEMBER]

    async def all_operations(self) -> list[operations.Operation]:
        pages = self.project.client.pages(
            operations.OPERATION_LIST, project_id=self.project.project_id, query={"instance_id": self.instance_id}
        )
        return [item async for item in pages]

    async def operate(self, *, dry_run: bool = False, **body: Any) -> operations.Operation:
        return await self.project.client.call(
            instances.MEMBER_OPERATION_CREATE,
            instances.MemberOperationRequest(**body),
            dry_run=dry_run,
            project_id=self.project.project_id,
            instance_id=self.instance_id,
        )

    async def instance(self) -> instances.Instance:
        return await self.project.client.call(
            instances.INSTANCE_GET, project_id=self.project.project_id, instance_id=self.instance_id
        )

    async def change(
        self, endpoint: Endpoint[Any, operations.Operation], body: Any, *, dry_run: bool = False
    ) -> operations.Operation:
        """Request an operation on the whole instance."""
        return await self.project.client.call(
            endpoint, body, dry_run=dry_run, project_id=self.project.project_id, instance_id=self.instance_id
        )

    async def is_at_work(self) -> bool:
        """Return whether the daemons are to run: the instance is not stopped, and no operation restarts them."""
        return (await self.instance()).status in ("running", "degraded")

    async def take(self, operation_id: str, name: operations.ExitName, reason: str) -> operations.Operation:
        body: Any = operations.GiveUpMembers if name == "tombstone" else operations.TakeExit
        return await self.project.client.call(
            operations.EXITS[name], body(reason=reason), project_id=self.project.project_id, operation_id=operation_id
        )

    async def decommission(self) -> str:
        """Take Slurm off all machines. Return why that failed; empty if it did not."""
        operation = await self.project.client.call(
            instances.DECOMMISSION,
            instances.Decommission(reason="the campaign ends"),
            project_id=self.project.project_id,
            instance_id=self.instance_id,
        )
        ended = await self.project.ended(operation.operation_id)
        self.journal.note("operation", f"decommission: {ended.operation_id} {ended.status}")
        return ended.error.message if ended.error else ""

    async def reset_breaker(self, role: str) -> None:
        await self.project.client.call(
            instances.BREAKER_RESET,
            instances.ResetBreaker(reason="the faults are healed"),
            project_id=self.project.project_id,
            instance_id=self.instance_id,
            component_key=role,
        )

    async def on(self, machine: str, *argv: str, timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        """Run a command as root on the machine. One that cannot run, or does not end in time, has a status of -1."""
        return await asyncio.to_thread(self._on, machine, argv, timeout_s)

    def _on(self, machine: str, argv: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
        try:
            command = self.lab.exec_command(machine, argv)
            return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
        except (LabError, subprocess.TimeoutExpired) as error:
            return subprocess.CompletedProcess(list(argv), -1, "", str(error))

    async def as_user(self, *argv: str, timeout_s: float = COMMAND_S) -> subprocess.CompletedProcess[str]:
        return await self.on(HEAD, "runuser", "-u", USER, "--", *argv, timeout_s=timeout_s)

    async def node_names(self) -> set[str] | None:
        """Return the names of Slurm's nodes, also of login machines, which are in no partition; None if unknown."""
        shown = await self.on(HEAD, "scontrol", "-o", "show", "nodes")
        words = [word for line in shown.stdout.splitlines() for word in line.split()[:1]]
        named = {word.removeprefix("NodeName=") for word in words if word.startswith("NodeName=")}
        empty = "No nodes" in shown.stdout + shown.stderr
        return named if shown.returncode == 0 or empty else None

    async def state_of(self, machine: str) -> list[str]:
        """Return what differs on the machine from its state before Slurm."""
        after = await asyncio.to_thread(machine_state.capture, self.cloud.name, machine)
        return machine_state.difference(self.before[machine], after)

    def process(self, name: str) -> Process:
        return Process(self.folder / PROCESSES[name], name.split()[-1])

    @property
    def folder(self) -> Path:
        return self.cloud.home / self.cloud.name

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process of the control plane, if it runs."""
        record = self.process(name).running()
        if record is not None:
            handle = os.pidfd_open(record.pid)
            signal.pidfd_send_signal(handle, number)
            os.close(handle)

    def start(self, name: str) -> None:
        process = self.process(name)
        if process.running() is None:
            process.start(self.commands[name])


@contextlib.asynccontextmanager
async def running(
    name: str, port: int, machines: int, workers: Sequence[str], journal: Journal
) -> AsyncIterator[Cluster]:
    """Yield a cluster with two controllers of the app. At the end all of it is deleted."""
    with empty_cloud(name, port) as cloud:
        journal.note("start", f"{machines} machines, lab {name}")
        await asyncio.to_thread(cloud.up, machines)
        context = contexts.load(cloud.home).contexts[name]
        async with Client(context.server, BearerToken(context.token)) as client:
            names = [f"gpu-{number}" for number in range(1, machines + 1)]
            project = Project(client, context.project_id)
            cluster = Cluster(cloud, names, Lab(DEFAULT_STATE, name), project, journal)
            await _deploy(cluster, workers)
            yield cluster


async def _deploy(cluster: Cluster, workers: Sequence[str]) -> None:
    for machine in cluster.machines:
        cluster.before[machine] = await asyncio.to_thread(machine_state.capture, cluster.cloud.name, machine)
    for name in ("server", "controller"):
        record = cluster.process(name).running()
        assert record is not None, f"the {name} does not run"
        cluster.commands[name] = record.command
    cluster.commands["second controller"] = cluster.commands["controller"]
    cluster.start("second controller")
    inputs = {"cluster_name": NAME, "controller_allocation_id": HEAD, "worker_allocation_ids": list(workers)}
    body = instances.DeployInstance(name=NAME, app_slug="slurm", topology="split", inputs=inputs)
    made = await cluster.project.client.call(instances.INSTANCE_CREATE, body, project_id=cluster.project.project_id)
    cluster.instance_id = made.instance.instance_id
    ended = await cluster.project.ended(made.operation.operation_id)
    assert ended.status == "succeeded", f"the deploy failed: {ended.error}"
    cluster.journal.note("deploy", f"controller {HEAD}, workers {', '.join(workers)}")
