"""A small app, the platform in memory, and a wire that loses answers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, HealthSettings, Operation, RunnerSettings
from gpuaas_sdk.testing import FakeMachines, FakePlatform

MANIFEST = """
slug: demo
display_name: Demo
version: 1.0.0
runtime_backend: machines
operating_modes: [managed]
control_plane_scopes: [instance]
roles:
  - {component_key: head, min: 1, max: 1}
  - {component_key: worker, max: 9, operations: [add, drain, remove, replace, repair]}
instance_operations: [stop, start, upgrade]
permissions: {demo.key.rotate: {meaning: rotate the key, roles: [project_admin]}}
actions: [{name: rotate, title: Rotate the key, permission: demo.key.rotate, input_schema: {type: object}}]
secret_purposes: [role_join]
topologies: {small: {head: head_allocation, worker: worker_allocations}}
deploy_form: {type: object}
"""

Working = Callable[..., AbstractAsyncContextManager[None]]


class LossyWire:
    """Forwards TCP; can swallow the next answers after the server has done its work."""

    def __init__(self, server: str) -> None:
        self._server = urlsplit(server)
        self.answers_to_lose = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        upstream = await asyncio.open_connection(self._server.hostname, self._server.port)
        self._writers += [writer, upstream[1]]
        await asyncio.gather(self._pump(reader, upstream[1], lossy=False), self._pump(upstream[0], writer, lossy=True))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, lossy: bool) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                if lossy and self.answers_to_lose:
                    self.answers_to_lose -= 1
                    break
                writer.write(data)
                await writer.drain()
        writer.close()

    def hang_up(self) -> None:
        for writer in self._writers:
            writer.close()


@contextlib.asynccontextmanager
async def _lossy(server: str) -> AsyncIterator[tuple[str, LossyWire]]:
    wire = LossyWire(server)
    listener = await asyncio.start_server(wire.connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", wire
    finally:
        listener.close()
        wire.hang_up()
        await listener.wait_closed()


@pytest.fixture
def lossy() -> Callable[[str], AbstractAsyncContextManager[tuple[str, LossyWire]]]:
    return _lossy


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "manifest.yaml"
    path.write_text(MANIFEST)
    return path


@pytest.fixture
def app(manifest: Path) -> App:
    return App("demo", manifest=manifest)


@pytest.fixture
def whole_app(app: App) -> App:
    """The app with a handler for each promise of its manifest."""

    async def nothing(op: Operation) -> None:
        return None

    app.operation("deploy")(nothing)
    app.operation("decommission")(nothing)
    for kind in app.manifest.instance_operations:
        app.operation(kind)(nothing)
    for role in app.manifest.roles:
        for member_kind in role.operations:
            app.operation(member_kind, role=role.component_key)(nothing)
    app.action("rotate")(nothing)
    return app


@pytest.fixture
async def platform() -> FakePlatform:
    return FakePlatform("demo", secret_purposes=["role_join"])


@pytest.fixture
async def client(platform: FakePlatform) -> AsyncIterator[Client]:
    async with platform.serve() as client:
        yield client


@pytest.fixture
def machines() -> FakeMachines:
    return FakeMachines()


@pytest.fixture
def working(app: App, client: Client, platform: FakePlatform, machines: FakeMachines) -> Working:
    """`async with working():` has a controller of the app at work; leaving kills it without a word."""

    @contextlib.asynccontextmanager
    async def work(
        name: str = "one",
        lease_s: int = 15,
        wire: Client | None = None,
        look_every_s: float = 0.05,
        look_s_max: float = 60,
    ) -> AsyncIterator[None]:
        settings = RunnerSettings(
            lease_s=lease_s,
            claim_wait_s=5,
            refused_pause_s=0.05,
            health=HealthSettings(interval_s=look_every_s, lease_s=3, look_s_max=look_s_max),
        )
        runner = app.runner(wire or client, platform.project_id, name, settings=settings, connect=machines.connect)
        task: asyncio.Future[None] = asyncio.ensure_future(_awaited(runner.run()))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    return work


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable
