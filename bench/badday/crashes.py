"""Processes that die under load: the server, its PostgreSQL server, and one of two servers on one database."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator

from gpuaas_sdk.testing import free_port

from bench.badday.load import OPTIONS, load_on, until
from bench.badday.parts import Cloud, EventStream, ServerProcess, postgres_server
from bench.badday.result import Place, Result

PAUSE_S_MAX = 0.2
WATCHERS = 8
_LOST_CONNECTION = (OSError, asyncio.IncompleteReadError)


async def kills(place: Place) -> Result:
    """Kill the server at random moments, also in the middle of a commit."""
    with ServerProcess(place.folder / "data", place.database_url, options=OPTIONS) as server:
        async with load_on(server) as load:
            async with load.running():
                for _ in range(place.size.kills):
                    await load.advance()
                    await asyncio.sleep(random.uniform(0, PAUSE_S_MAX))
                    server.kill()
                    await asyncio.to_thread(server.start)
                    await load.accepts()
            return await load.count(server, f"{place.size.kills} x kill -9")


async def restarts(place: Place) -> Result:
    """Stop PostgreSQL under a running server, in turns as an operator does and as a crash does."""
    assert place.postgres is not None
    with ServerProcess(place.folder / "data", place.database_url, options=OPTIONS) as server:
        async with load_on(server) as load:
            async with load.running():
                for number in range(place.size.restarts):
                    await load.advance()
                    mode = ("fast", "immediate")[number % 2]
                    await asyncio.to_thread(postgres_server.stop, place.postgres, mode)
                    await load.ready_is(503, "store")
                    await asyncio.to_thread(postgres_server.start, place.postgres)
                    await load.ready_is(200)
            return await load.count(server, f"{place.size.restarts} x PostgreSQL restarted")


async def failovers(place: Place) -> Result:
    """Kill one of two servers behind a balancer. Writers and watchers continue at the other one."""
    data = place.folder / "data"
    servers = [ServerProcess(data, place.database_url, options=OPTIONS) for _ in range(2)]
    with servers[0], servers[1]:
        async with balanced([server.port for server in servers]) as url, load_on(servers[0], url) as load:
            watchers = [Watcher(load.cloud, url) for _ in range(WATCHERS)]
            async with following(watchers):
                async with load.running():
                    for number in range(place.size.failovers):
                        await load.advance()
                        killed = servers[number % 2]
                        killed.kill()
                        await load.ready_is(200)
                        await load.advance()
                        await asyncio.to_thread(killed.start)
                recorded = [event.cursor for event in await load.cloud.recorded()]
                with contextlib.suppress(TimeoutError):
                    await until(lambda: all(watcher.place >= recorded[-1] for watcher in watchers), "all events")
            for watcher in watchers:
                load.result.lost += len(set(recorded) - set(watcher.seen))
                load.result.doubled += len(watcher.seen) - len(set(watcher.seen))
            return await load.count(servers[0], f"{place.size.failovers} x one of two servers killed")


class Watcher:
    """Follows the events of a project and resumes after the last one it received."""

    def __init__(self, cloud: Cloud, url: str) -> None:
        self._cloud, self._url = cloud, url
        self.seen: list[int] = []
        self.place = 0

    async def follow(self) -> None:
        while True:
            with contextlib.suppress(*_LOST_CONNECTION):
                await self._connection()
            await asyncio.sleep(0.05)

    async def _connection(self) -> None:
        last = str(self.place) if self.place else ""
        stream = await EventStream.open(self._url, self._cloud.project_id, self._cloud.token, last_event_id=last)
        try:
            while stream.status == 200 and (block := await stream.next()) is not None:
                self.place = int(block.id)
                if block.event != "bookmark":
                    self.seen.append(self.place)
        finally:
            stream.close()


@contextlib.asynccontextmanager
async def following(watchers: list[Watcher]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(watcher.follow()) for watcher in watchers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def balanced(ports: list[int]) -> AsyncIterator[str]:
    """Yield the URL of a balancer that passes each connection to the next server that accepts it."""

    connections: set[asyncio.Task[None]] = set()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(ports.pop(0))
        for port in tuple(ports):
            with contextlib.suppress(OSError):
                server_reader, server_writer = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_copy(reader, server_writer), _copy(server_reader, writer))
                return
        writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(passed_on(reader, writer)))

    port = free_port()
    async with await asyncio.start_server(accept, "127.0.0.1", port):
        yield f"http://127.0.0.1:{port}"
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while content := await reader.read(65536):
            writer.write(content)
            await writer.drain()
    except OSError:
        return
    finally:
        writer.transport.abort()
