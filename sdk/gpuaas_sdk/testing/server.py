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
    """Serve the app and yield its address. The socket listens before the server starts, so no one has to wait."""
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
    """Abort connections whose client did not read its answer in time; they would disturb the next test."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # the event loop closes aborted connections in its next turn


def free_port() -> int:
    """Return a port for a server that starts later or restarts. No other process gets it while this process lives.

    A bound socket that does not listen reserves the port; a server that reuses addresses can still bind it."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    _RESERVED.append(reserved)
    return int(reserved.getsockname()[1])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the test runner."""
        yield
