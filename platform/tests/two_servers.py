"""Two servers on two machines, as `docs/how-to/install.md` describes them: a data folder for each, with copies of the
keys of the first, and a load balancer that requests `/readyz`."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from server_process import ServerProcess


class Balancer:
    """A load balancer in TCP mode: a new connection goes to the next server that is ready."""

    def __init__(self, *servers: ServerProcess) -> None:
        self._servers = list(servers)
        self._connected: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        try:
            async with listener:
                host, port = listener.sockets[0].getsockname()
                yield f"http://{host}:{port}"
        finally:
            for task in self._connected:
                task.cancel()
            await asyncio.gather(*self._connected, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.add(asyncio.create_task(self._connect(reader, writer)))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with _closed(writer):
            target = await self._ready()
            from_server, to_server = await asyncio.open_connection("127.0.0.1", target.port)
            async with _closed(to_server):
                await asyncio.gather(self._copy(reader, to_server), self._copy(from_server, writer))

    async def _ready(self) -> ServerProcess:
        async with httpx.AsyncClient(timeout=5) as client:
            while True:
                self._servers.append(self._servers.pop(0))
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(f"{self._servers[0].url}/readyz")).status_code == 200:
                        return self._servers[0]

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while block := await reader.read(65536):
                writer.write(block)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def _closed(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the connection at the end, also if the task is cancelled."""
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def second_folder(first: Path, second: Path) -> Path:
    """The data folder of the second machine: the keys of the first, and the shared content of artifacts."""
    second.mkdir(mode=0o700)
    shutil.copytree(first / "keys", second / "keys")
    shutil.copy(first / "custody.kek", second / "custody.kek")
    (first / "blobs").mkdir(exist_ok=True)
    (second / "blobs").symlink_to(first / "blobs")
    return second
