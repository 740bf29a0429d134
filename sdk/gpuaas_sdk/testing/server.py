"""Serve an ASGI app on loopback inside the running event loop, and addresses for servers in processes of their own."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn

_KEPT: list[socket.socket] = []


@contextlib.asynccontextmanager
async def serving(app: Any, *, port: int = 0) -> AsyncIterator[str]:
    """Yields the address. The socket listens before the server is up, so nobody has to wait for it."""
    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=1)
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await running
        await _cut_off(server)
        listening.close()


async def _cut_off(server: uvicorn.Server) -> None:
    """Connections whose client took nothing until the grace was over would lie open, and disturb another test."""
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)  # an event loop closes what was aborted in its next turn


def free_port() -> int:
    """A port for a server that starts later, or again: nobody else is given it for as long as this process lives.

    A socket that is bound and does not listen keeps it; a server that reuses addresses, as ours do, takes it too."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _KEPT.append(kept)
    return int(kept.getsockname()[1])


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the test runner."""
        yield
