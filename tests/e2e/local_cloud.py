"""A local cloud for the end-to-end tests: `gpuaas up` in a private home, then the public API through the SDK.

The tests act as a program of the project, with a service account that operates no app."""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpuaas_contract import capacity, identity, instances, operations
from gpuaas_lab.snapshot import host_snapshot
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client

BIN = Path(sys.executable).parent
LAB = "e2e"
PORT = 7190
NODES = 4
TASK_TTL_S = 45
"""A test waits until a task of a machine that is cut off has failed. Long enough for any task on a busy host."""


@dataclass
class LocalCloud:
    home: Path
    name: str = LAB
    port: int = PORT

    def gpuaas(self, *arguments: str, check: bool = True, timeout_s: float = 900) -> subprocess.CompletedProcess[str]:
        """Run the command as a person would; its output goes into the test's report when something fails."""
        done = subprocess.run(
            [BIN / "gpuaas", *arguments], env=self.environment(), capture_output=True, text=True, timeout=timeout_s
        )
        sys.stdout.write(f"$ gpuaas {' '.join(arguments)}\n{done.stdout}{done.stderr}\n")
        if check:
            assert done.returncode == 0, f"gpuaas {' '.join(arguments)} ended with {done.returncode}\n{done.stderr}"
        return done

    def up(self, nodes: int) -> None:
        self.gpuaas("up", "--lab", self.name, "--port", str(self.port), "--nodes", str(nodes), "--no-deploy")

    def lab(self, *arguments: str) -> str:
        command = [str(BIN / "gpuaas-lab"), arguments[0], "--lab", self.name, *arguments[1:]]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def kill(self, process: str) -> None:
        """kill -9 of `server` or of the app's `controller`, until it has ended; `up` starts it again."""
        handle = os.pidfd_open(self.pid(process))
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [])
        os.close(handle)

    def pid(self, process: str) -> int:
        path = {"server": "server.pid", "controller": "slurm/controller.pid"}[process]
        return int(json.loads((self.home / self.name / path).read_text())["pid"])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        file = self.home / self.name / "tests.json"
        if not file.exists():
            self.gpuaas("service-account", "create", "tests", "--key-file", str(file))
        key = json.loads(file.read_text())
        account = ServiceAccount(key["key_id"], key["client_secret"])
        async with Client(f"http://127.0.0.1:{self.port}", account) as client:
            yield client

    def environment(self) -> dict[str, str]:
        """The environment of a person who uses this cloud and no other."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        path = f"{BIN}:{os.environ['PATH']}"
        short = {"GPUAAS_TASK_TTL_S": str(TASK_TTL_S)}
        return {**kept, **short, "PATH": path, "GPUAAS_HOME": str(self.home), "NO_COLOR": "1"}


@contextmanager
def empty_cloud(lab: str, port: int = PORT) -> Iterator[LocalCloud]:
    """A home without a cloud. At the end, take the cloud of the lab down, with proof that nothing of it is left."""
    with tempfile.TemporaryDirectory(prefix=f"gpuaas-{lab}-") as folder:
        cloud = LocalCloud(Path(folder), lab, port)
        # Machines of a run that was killed belong to another home, and would keep asking for its server.
        cloud.gpuaas("lab", "down", "--lab", lab, "--purge")
        before = host_snapshot(lab)
        try:
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", lab, "--purge")
        assert host_snapshot(lab) - before == set()


@dataclass
class Project:
    """What a service account can do in its project."""

    client: Client
    project_id: str

    @classmethod
    async def of(cls, client: Client) -> "Project":
        me = await client.call(identity.ME)
        return cls(client, me.bindings[0].scope)

    async def allocations(self) -> dict[str, capacity.Allocation]:
        """Active allocations by node name."""
        pages = self.client.pages(capacity.ALLOCATION_LIST, project_id=self.project_id)
        return {item.node_name: item async for item in pages if item.status == "active"}

    async def members(self, instance_id: str) -> list[instances.Member]:
        pages = self.client.pages(instances.MEMBER_LIST, project_id=self.project_id, instance_id=instance_id)
        return [item async for item in pages]

    async def operation(self, operation_id: str) -> operations.Operation:
        return await self.client.call(operations.OPERATION_GET, project_id=self.project_id, operation_id=operation_id)

    async def operate(self, instance_id: str, **body: object) -> operations.Operation:
        request = instances.MemberOperationRequest(**body)  # type: ignore[arg-type]
        return await self.client.call(
            instances.MEMBER_OPERATION_CREATE, request, project_id=self.project_id, instance_id=instance_id
        )

    async def until(
        self, operation_id: str, condition: Callable[[operations.Operation], bool], timeout_s: float = 300
    ) -> operations.Operation:
        """Watch the operation until the condition holds or it ends."""
        async with asyncio.timeout(timeout_s):
            async for seen in self.client.watch_operation(self.project_id, operation_id):
                if condition(seen):
                    return seen
        return await self.operation(operation_id)

    async def ended(self, operation_id: str, timeout_s: float = 600) -> operations.Operation:
        return await self.until(operation_id, lambda _: False, timeout_s)


def running_step(name: str) -> Callable[[operations.Operation], bool]:
    return lambda operation: any(step.name == name and step.state == "running" for step in operation.steps)
