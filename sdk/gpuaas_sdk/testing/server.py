"""Serve an ASGI app on loopback inside the running event loop, and reserve ports for servers in other processes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

_RESERVED: list[socket.socket] = []


@contextlib.asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    """Serve the app and yield its address. The socket already listens, so clients can connect immediately.

    async with serving(platform.app) as address, platform.client(address) as client:
        me = await client.call(identity.ME)"""
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = _Server(config)
    serving_task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving_task
        await _abort_connections(server)
        listener.close()


async def _abort_connections(server: uvicorn.Server) -> None:
    """Abort connections whose client did not read the response in time; they would disturb the next test."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # the event loop closes aborted connections in its next turn


def free_port() -> int:
    """Return a port for a server that starts later or restarts. It is reserved as long as this process runs.

    A bound socket that does not listen reserves it. A server with SO_REUSEADDR can still bind the same port.

    port = free_port()
    async with serving(platform.app, port=port) as address:
        ..."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    return int(reserved.getsockname()[1])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle no signals: the test runner handles them."""
        yield
