"""Measure the memory of idle watchers of one project, and the time until all have received an event.

The watchers are a thousand; ten thousand need open files: python -m bench watchers --watchers 10000"""

import argparse
import asyncio
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import uvloop

from bench import api

WARM = 50
_PORT = 7174
_APP: dict[str, Any] = {
    "slug": "bench",
    "display_name": "Bench",
    "version": "1.0.0",
    "runtime_backend": "bench",
    "operating_modes": ["tenant_dedicated"],
    "control_plane_scopes": ["project"],
    "roles": [{"component_key": "head", "max": 1}],
    "topologies": {"solo": {"head": "allocation"}},
    "deploy_form": {"type": "object", "properties": {"allocation": {"type": "string"}}},
}


def run(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench watchers", description=__doc__)
    parser.add_argument("--watchers", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20, help="events to send, one after the other")
    options = parser.parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        password = api.admin_password(Path(folder))
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", folder]
        command += ["--rate-limit-per-s", "0", "--streams-per-caller", "0"]  # one caller makes all connections
        server = api.process([*command, "--listen", f"127.0.0.1:{_PORT}"], _PORT)
        with server:
            uvloop.run(_measure(api.login(password, _PORT), server.pid, options.watchers, options.rounds))


async def _measure(admin_token: str, server_pid: int, count: int, rounds: int) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{_PORT}/api/v1", timeout=30) as client:
        admin = Admin(client, admin_token)
        await admin.make_project()
        warm = [await Watcher.opened(_PORT, admin.stream_path, admin_token) for _ in range(WARM)]
        await admin.make_event()
        await asyncio.gather(*(watcher.received.wait() for watcher in warm))
        before_kb = resident_kb(server_pid)
        watchers = [await Watcher.opened(_PORT, admin.stream_path, admin_token) for _ in range(count)]
        each_kb = (resident_kb(server_pid) - before_kb) / count
        print(f"{count:,} idle watchers: {each_kb:.1f} kB each")
        lasts_ms, all_ms = [], []
        for _ in range(rounds):
            took_ms = await _round(admin, [*warm, *watchers])
            lasts_ms.append(took_ms[-1])
            all_ms += took_ms
        all_ms.sort()
        print(
            f"time from a request until {WARM + count} watchers have received its event, {rounds} rounds:"
            f" p50 {statistics.median(all_ms):.1f} ms, p99 {all_ms[len(all_ms) * 99 // 100]:.1f} ms,"
            f" the last after {statistics.median(lasts_ms):.1f} ms (median), {max(lasts_ms):.1f} ms (worst)"
        )
        print(f"after the delivery of all events: {(resident_kb(server_pid) - before_kb) / count:.1f} kB each")
        for watcher in [*warm, *watchers]:
            watcher.transport.abort()


async def _round(admin: "Admin", watchers: list["Watcher"]) -> list[float]:
    """Return the milliseconds until each watcher received the event, sorted."""
    for watcher in watchers:
        watcher.received.clear()
    started_s = time.perf_counter()
    await admin.make_event()
    async with asyncio.timeout(30):
        await asyncio.gather(*(watcher.received.wait() for watcher in watchers))
    return sorted((watcher.received_at_s - started_s) * 1000 for watcher in watchers)


class Watcher(asyncio.Protocol):
    """A minimal client, so that its own cost affects the measurement as little as possible."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.accepted, self.received = asyncio.Event(), asyncio.Event()
        self.on_event: Callable[[bytes], None] = self._note
        self.received_at_s = 0.0
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # those of uvloop are of another class
        self.transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1"):
            if not data.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"bench: a watcher was refused: {data.decode()}")
            self.accepted.set()
        if b"\ndata: {" in data:
            self.on_event(data)

    def _note(self, _: bytes) -> None:
        self.received_at_s = time.perf_counter()
        self.received.set()

    @classmethod
    async def opened(cls, port: int, path: str, token: str) -> "Watcher":
        """Open a stream of events and wait until the server has accepted it."""
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        _, watcher = await asyncio.get_running_loop().create_connection(lambda: cls(request), "127.0.0.1", port)
        await watcher.accepted.wait()
        return watcher


class Admin:
    """Makes the project and the events."""

    def __init__(self, client: httpx.AsyncClient, token: str) -> None:
        self._client, self._token = client, token
        self.project_id = self.stream_path = ""
        self._enabled = False

    async def make_project(self) -> None:
        org = await self._send("POST", "/orgs", {"name": "bench", "first_admin": "admin"})
        project = await self._send("POST", f"/orgs/{org['org_id']}/projects", {"name": "watched"})
        self.project_id = project["project_id"]
        self.stream_path = f"/api/v1/projects/{self.project_id}/events/stream"
        await self._send("POST", "/admin/app-versions", _APP)

    async def make_event(self) -> None:
        self._enabled = not self._enabled
        path = f"/projects/{self.project_id}/entitlements/{_APP['slug']}"
        await self._send("PUT", path, {"enabled": self._enabled})

    async def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._token}", "X-Idempotency-Key": uuid.uuid4().hex}
        answer = await self._client.request(method, path, json=body, headers=headers)
        if answer.is_error:
            raise SystemExit(f"bench: {method} {path}: {answer.status_code} {answer.text}")
        content: dict[str, Any] = answer.json()
        return content


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")))
