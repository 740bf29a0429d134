"""Serve an ASGI app on loopback inside the running event loop; tests talk to it over real sockets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any

import uvicorn


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
        listening.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals belong to the test runner."""
        yield
