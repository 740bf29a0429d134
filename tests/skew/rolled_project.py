"""A project during an upgrade: an app with a controller of any release, a follower of events, and a busy client."""

import asyncio
import collections
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
import paced_app
from gpuaas_contract import catalog, events, instances, lifecycles, operations
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from releases import Release
from server_process import Cloud, ServerProcess, until

DEADLINE_S = 120


@dataclass
class Project:
    url: str
    """The address of a server, or of the load balancer."""
    folder: Path
    cloud: Cloud
    client: Client
    deployed: instances.Deployed
    seen: list[events.Event] = field(default_factory=list)
    """What the follower has received."""
    answered: list[str] = field(default_factory=list)
    """Correlation ids of the changes whose answer the busy client has received."""

    @classmethod
    @contextlib.asynccontextmanager
    async def opened(cls, url: str, password: str, folder: Path) -> AsyncIterator["Project"]:
        """Make the project with an operation that waits for a controller."""
        async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(base_url=url, timeout=60) as http:
            cloud = Cloud(http)
            await cloud.sign_in(password)
            await cloud.make_project()
            await cloud.call(catalog.VERSION_REGISTER, paced_app.MANIFEST)
            await cloud.call(catalog.VERSION_PUBLISH, {}, app_slug="paced", version="1.0.0")
            await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="paced")
            inputs = {"allocation": await cloud.allocation()}
            body = instances.DeployInstance(name="one", app_slug="paced", topology="solo", inputs=inputs)
            deployed = await cloud.call(instances.INSTANCE_CREATE, body)
            key = await cloud.service_account_key("controller", "paced")
            (folder / "key.json").write_bytes(msgspec.json.encode(key))
            async with Client(url, BearerToken(cloud.token)) as client:
                yield cls(url, folder, cloud, client, deployed)

    @contextlib.contextmanager
    def controller(self, release: Release) -> Iterator[None]:
        """A controller of the app; it is killed at the end, as in a crash."""
        command = release.python(paced_app.__file__, str(self.folder), "run", "--server", self.url)
        command += ["--project", self.cloud.project_id, "--credentials", str(self.folder / "key.json")]
        with (self.folder / "controller.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Follow the events; at the end, wait until the newest one has been received."""
        following = asyncio.create_task(self._follow())
        yield
        newest = (await self.cloud.recorded())[-1].cursor
        await until(lambda: following.done() or (bool(self.seen) and self.seen[-1].cursor >= newest))
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following

    @contextlib.asynccontextmanager
    async def busy(self) -> AsyncIterator[None]:
        """Make one change after another, as a client that repeats a request until it is answered."""
        ending = asyncio.Event()
        changing = asyncio.create_task(self._change(ending))
        yield
        ending.set()
        await changing

    async def half_done(self, operation: operations.Operation) -> None:
        """Wait until the operation waits in its second step."""
        await self._until(operation, lambda now: any(step.name == "second" for step in now.steps))

    async def refused_claims(self) -> None:
        """Wait until the server has refused two claims of the controller."""
        async with asyncio.timeout(60):
            while (self.folder / "controller.log").read_text().count("claim.failed") < 2:  # noqa: ASYNC110 - a process
                await asyncio.sleep(0.1)

    async def finish(self, operation: operations.Operation) -> operations.Operation:
        (self.folder / f"continue-{operation.kind}").touch()
        return await self._until(operation, lambda now: now.status in lifecycles.ENDED_OPERATION)

    async def stop_instance(self) -> operations.Operation:
        return await self.cloud.call(instances.STOP, {}, instance_id=self.deployed.instance.instance_id)

    def ran(self) -> list[tuple[str, ...]]:
        """The steps that began: operation kind, step and folder of the SDK. The first step makes the file."""
        file = self.folder / "ran"
        return [tuple(line.split(" ", 2)) for line in file.read_text().splitlines()] if file.exists() else []

    async def check_shared(self, *servers: ServerProcess) -> None:
        """Each of the servers takes changes, and all of them read those of the others."""
        made: list[str] = []
        for server in (*servers, *servers):
            async with httpx.AsyncClient(base_url=server.url, timeout=60) as http:
                cloud = Cloud(http, self.cloud.token, self.cloud.project_id)
                made.append(await cloud.make_event())
                present = [event.correlation_id for event in await cloud.recorded()]
                assert [name for name in present if name in made] == made

    async def check_record(self) -> None:
        """Nothing that was answered is lost or doubled, and the follower missed nothing."""
        recorded = await self.cloud.recorded()
        assert [event.cursor for event in self.seen] == [event.cursor for event in recorded]
        counted = collections.Counter(event.correlation_id for event in recorded)
        assert self.answered
        assert {counted[name] for name in self.answered} == {1}

    async def _follow(self) -> None:
        async for event in self.client.events(self.cloud.project_id):
            self.seen.append(event)

    async def _change(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            number = len(self.answered)
            await self.client.call(
                catalog.ENTITLEMENT_SET,
                catalog.SetEntitlement(enabled=number % 2 == 0),
                correlation=f"change-{number}",
                project_id=self.cloud.project_id,
                app_slug="toy",
            )
            self.answered.append(f"change-{number}")
            await asyncio.sleep(0.02)

    async def _until(
        self, operation: operations.Operation, condition: Callable[[operations.Operation], bool]
    ) -> operations.Operation:
        watching = self.client.watch_operation(self.cloud.project_id, operation.operation_id)
        async for now in watching:
            if condition(now):
                return now
        raise AssertionError("the operation ended before that")
