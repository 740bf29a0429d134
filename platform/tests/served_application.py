"""The web application on a real socket, in a thread with an event loop of its own, for clients that are not async."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
import uvicorn
from gpuaas_platform import server
from gpuaas_platform.edge import http, listener
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, World

Made = TypeVar("Made")


@dataclass
class Served:
    url: str
    made: Any
    """What `make` returned."""


@contextlib.contextmanager
def served(settings: Settings, make: Callable[[World], Coroutine[Any, Any, Made]]) -> Iterator[Served]:
    """Serve a world that `make` has filled. Its long polls and streams end at once."""
    ready: list[Served] = []
    is_up, failures = threading.Event(), list[BaseException]()
    listener = uvicorn.Server(_config(None))

    async def run() -> None:
        clock = FakeClock()
        async with server.open_site(settings, clock) as site:
            application = http.application(site, server.DOMAINS)
            transport = httpx.ASGITransport(app=application)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                made = await make(await World.make(site, clock, client))
            site.hub.close()
            listener.config = _config(application)
            await _serve(listener, lambda port: ready.append(Served(f"http://127.0.0.1:{port}", made)), is_up)

    def hold() -> None:
        try:
            asyncio.run(run())
        except BaseException as error:  # noqa: BLE001 - handed to the thread that waits
            failures.append(error)
        finally:
            is_up.set()

    thread = threading.Thread(target=hold, name="served application")
    thread.start()
    try:
        is_up.wait(60)
        if failures:
            raise failures[0]
        yield ready[0]
    finally:
        listener.should_exit = True
        thread.join(60)


async def _serve(listener: uvicorn.Server, report_port: Callable[[int], None], is_up: threading.Event) -> None:
    task = asyncio.create_task(listener.serve())
    while not listener.started:  # noqa: ASYNC110 - uvicorn reports it by this flag only
        await asyncio.sleep(0.01)
    report_port(listener.servers[0].sockets[0].getsockname()[1])
    is_up.set()
    await task


def _config(application: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application, host="127.0.0.1", port=0, log_config=None, access_log=False, lifespan="off", http=listener.Protocol
    )
