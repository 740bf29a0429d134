"""What a request costs the server, counted and not timed: function calls, tasks, timers, and the memory of a wait."""

import asyncio
import gc
import sys
import tracemalloc
from types import FrameType
from typing import Any

import msgspec
import pytest
import uvicorn
from gpuaas_contract import node
from gpuaas_platform import server
from gpuaas_platform.edge import http, listener
from platform_world import World
from server_process import until

CALLS_MAX = 71
"""Calls of functions of the platform and of uvicorn for one GET. The parser calls six of them."""
WAIT_BYTES_MAX = 13_000
"""Memory of Python objects for one connection on which a heartbeat waits, without its socket and its TLS."""
WAITS = 40
TURNS = 5
"""Turns of the event loop in which a read on SQLite ends: it waits for nothing."""
STATE = uvicorn.server.ServerState()


class Transport(asyncio.Transport):
    """A connection in memory, so that only the server's own work is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return False


@pytest.fixture
def config(world: World) -> uvicorn.Config:
    application = http.application(world.site, server.DOMAINS)
    config = uvicorn.Config(application, log_config=None, lifespan="off", proxy_headers=False, http=listener.Protocol)
    config.load()
    return config


def _connected(config: uvicorn.Config) -> tuple[listener.Protocol, Transport]:
    protocol, transport = listener.Protocol(config, STATE, {}), Transport()
    protocol.connection_made(transport)
    return protocol, transport


def _request(line: str, token: str, body: bytes = b"") -> bytes:
    headers = [f"Authorization: Bearer {token}", "Host: test", f"Content-Length: {len(body)}"]
    return "\r\n".join([f"{line} HTTP/1.1", *headers, "", ""]).encode() + body


def _counted(monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop, name: str) -> list[Any]:
    """Return a list that gets the arguments of each call of a method of the loop."""
    calls, real = list[Any](), getattr(loop, name)

    def counting(*given: Any, **named: Any) -> Any:
        calls.append(given)
        return real(*given, **named)

    monkeypatch.setattr(loop, name, counting)
    return calls


async def _answer(protocol: listener.Protocol, transport: Transport, request: bytes) -> bytes:
    transport.sent = b""
    protocol.data_received(request)
    await until(lambda: transport.sent != b"")
    return transport.sent


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)  # other drivers make tasks and timers
async def test_a_read_needs_few_calls_one_task_and_no_timer(
    world: World, config: uvicorn.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol, transport = _connected(config)
    request = _request(f"GET /api/v1/projects/{world.project_id}/service-accounts?page_size=5", world.token)
    assert (await _answer(protocol, transport, request)).startswith(b"HTTP/1.1 200")
    calls, loop = list[str](), asyncio.get_running_loop()

    def count(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and ("gpuaas_platform" in file or "uvicorn" in file):
            calls.append(frame.f_code.co_qualname)

    tasks, timers = _counted(monkeypatch, loop, "create_task"), _counted(monkeypatch, loop, "call_at")
    sys.setprofile(count)
    try:
        protocol.data_received(request)
        for _ in range(TURNS):
            await asyncio.sleep(0)
    finally:
        sys.setprofile(None)
    assert transport.sent.count(b"HTTP/1.1 200") == 2
    assert len(calls) <= CALLS_MAX, "\n".join(calls)
    assert (len(tasks), len(timers)) == (1, 0)


async def test_a_heartbeat_that_waits_keeps_little_in_memory(world: World, config: uvicorn.Config) -> None:
    n1 = await world.node("n1")
    facts = {"hostname": "n1", "cpus": 4, "memory_mb": 1000}
    body = msgspec.json.encode({"agent_version": "1", "boot_id": "b", "facts": facts})
    request = _request(f"PUT {node.STATUS.path}?wait_s=30", n1.token, body)
    waiting = [_connected(config)]
    waiting[0][0].data_received(request)
    await until(lambda: world.site.hub.waiting == 1)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(WAITS):
            waiting.append(_connected(config))
            waiting[-1][0].data_received(request)
        await until(lambda: world.site.hub.waiting == 1 + WAITS)
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    world.site.hub.close()
    await until(lambda: all(transport.sent.startswith(b"HTTP/1.1 200") for _, transport in waiting))
    assert held / WAITS <= WAIT_BYTES_MAX
