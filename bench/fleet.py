"""Measure the time of a heartbeat and the cost of an agent, with 200 and 2,000 simulated agents on one server.

Like a real agent, each simulated one has one TLS connection. It sends a heartbeat with all facts and waits with it for
tasks; after ten seconds without a task it gets its answer and sends the next one. The time of a heartbeat is the time
until the answer without those ten seconds."""

import asyncio
import base64
import contextlib
import json
import os
import random
import secrets
import socket
import sqlite3
import ssl
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx
import uvloop
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from bench import api, watchers

FLEETS = (200, 2000)
INTERVAL_S = 10.0
"""Twice the interval that the server requests, so that a node is lost after half as many missed heartbeats."""
WARM_S = 15.0
MEASURED_S = 30.0
ENROL_AT_ONCE = 32
WARM_AGENTS = 50
"""Agents before the first measurement, so that the memory of code that runs once is not counted as that of agents."""
IDLE_S = 10.0
_ADMIN_PORT, _NODES_PORT = 7175, 7176


def run() -> None:
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {1})  # the server uses the other core
    try:
        measured = {count: _measured(count) for count in FLEETS}
    finally:
        os.sched_setaffinity(0, all_cores)
    few, many = (measured[count].cpu_ms_per_agent for count in FLEETS)
    print(f"processor time per agent, {FLEETS[1]} agents / {FLEETS[0]} agents: {many / few:.2f}")


@dataclass
class Fleet:
    """The measurements of all agents together."""

    beats_ms: list[float] = field(default_factory=list)
    failures: int = 0
    server_mb: float = 0.0
    kb_per_agent: float = 0.0
    cpu_ms_per_agent: float = 0.0
    connecting: set[asyncio.Future[None]] = field(default_factory=set)

    def fail(self, why: str) -> None:
        self.failures += 1
        if self.failures == 1:
            print(f"first failure: {why}", file=sys.stderr)


def _measured(count: int) -> Fleet:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        password, address = api.admin_password(Path(folder)), own_address()
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", folder, "--rate-limit-per-s", "0"]
        command += ["--listen", f"127.0.0.1:{_ADMIN_PORT}", "--listen", f"{address}:{_NODES_PORT}"]
        server = api.process(command, _ADMIN_PORT)
        with server:
            desk = Wire("127.0.0.1", _ADMIN_PORT, None, api.login(password, _ADMIN_PORT))
            fleet = uvloop.run(_run_fleet(count, desk, Wire(address, _NODES_PORT, tls(_ADMIN_PORT)), server.pid))
        fleet.beats_ms.sort()
        print(
            f"{count} agents: {len(fleet.beats_ms)} heartbeats, p50 {statistics.median(fleet.beats_ms):.1f} ms,"
            f" p99 {fleet.beats_ms[len(fleet.beats_ms) * 99 // 100]:.1f} ms, worst {fleet.beats_ms[-1]:.1f} ms;"
            f" {fleet.failures} failed, {_lost_count(Path(folder))} marked as lost;"
            f" server {fleet.server_mb:.0f} MB, {fleet.kb_per_agent:.1f} kB per agent,"
            f" {fleet.cpu_ms_per_agent:.2f} ms of CPU per agent in {INTERVAL_S:.0f} s",
            flush=True,
        )
        return fleet


async def _run_fleet(count: int, desk: "Wire", wire: "Wire", server_pid: int) -> Fleet:
    # uvloop reports an error if both sides close a TLS connection at the same time, which agents and server do here.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    fleet = Fleet()
    warm = await enrol_all(range(WARM_AGENTS), desk, wire, fleet)
    await asyncio.sleep(WARM_S)
    idle_share, idle_kb = await busy_share(server_pid, IDLE_S), watchers.resident_kb(server_pid)
    agents = await enrol_all(range(WARM_AGENTS, WARM_AGENTS + count), desk, wire, fleet)
    await asyncio.sleep(WARM_S)
    fleet.beats_ms.clear()
    share = await busy_share(server_pid, MEASURED_S) - idle_share
    fleet.cpu_ms_per_agent = share * INTERVAL_S * 1000 / count
    resident_kb = watchers.resident_kb(server_pid)
    fleet.server_mb, fleet.kb_per_agent = resident_kb / 1024, (resident_kb - idle_kb) / count
    for agent in [*warm, *agents]:
        agent.stop()
    return fleet


async def enrol_all(numbers: Iterable[int], desk: "Wire", wire: "Wire", fleet: Fleet) -> "list[Agent]":
    """Enrol agents through `desk`; each then sends heartbeats through `wire`, also after this returns.

    They start before the last is enrolled: otherwise the first would be lost by then."""
    agents, left = list[Agent](), iter(numbers)

    async def enrol_some() -> None:
        line = Line(desk)
        for number in left:
            agents.append(await _enrol(number, line, desk.admin_token, wire, fleet))
            agents[-1].start()
        line.close()

    await asyncio.gather(*(enrol_some() for _ in range(ENROL_AT_ONCE)))
    return agents


async def _enrol(number: int, line: "Line", admin_token: str, wire: "Wire", fleet: Fleet) -> "Agent":
    key, name, facts = Ed25519PrivateKey.generate(), f"node-{number}", _facts(number)
    public_key_pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    admission = await line.call("/api/v1/admin/enrolment-tokens", {"name": name}, admin_token)
    request = {"token": admission["token"], "name": name, "public_key_pem": public_key_pem, "facts": facts}
    node = await line.call("/node/v1/enrol", {**request, "ssh_host_public_key": f"ssh-ed25519 AAAA{number}"})
    token = await line.call("/node/v1/token", _proof(key, node["node_id"]))
    status = {"agent_version": "1.0.0", "boot_id": f"boot-{number}", "facts": facts}
    path, body = f"/node/v1/status?wait_s={INTERVAL_S:g}", json.dumps(status).encode()
    return Agent(wire, fleet, wire.request("PUT", path, body, token["access_token"]))


class Agent(asyncio.Protocol):
    """One connection that sends the same bytes after each answer: much cheaper than the server that it loads."""

    __slots__ = ("_fleet", "_request", "_started_s", "_transport", "_wire", "is_stopped")

    def __init__(self, wire: "Wire", fleet: Fleet, request: bytes) -> None:
        self._wire, self._fleet, self._request = wire, fleet, request
        self._started_s, self.is_stopped = 0.0, False
        self._transport: asyncio.Transport | None = None

    def start(self) -> None:
        """Start at a random time of the first interval."""
        asyncio.get_running_loop().call_later(random.uniform(0, INTERVAL_S), self._connect)

    def stop(self) -> None:
        self.is_stopped = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # those of uvloop are of another class
        self._beat()

    def data_received(self, data: bytes) -> None:
        """An answer arrives in one piece: it is shorter than a TLS record."""
        took_s = time.perf_counter() - self._started_s
        if not data.startswith(b"HTTP/1.1 200"):
            self._fleet.fail(data.decode("latin-1"))
            asyncio.get_running_loop().call_later(1, self._beat)
            return
        self._fleet.beats_ms.append((took_s - INTERVAL_S) * 1000)
        self._beat()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if not self.is_stopped:
            self._fleet.fail(f"the connection was lost: {error}")
            asyncio.get_running_loop().call_later(1, self._connect)

    def _beat(self) -> None:
        if self._transport is not None:
            self._started_s = time.perf_counter()
            self._transport.write(self._request)

    def _connect(self) -> None:
        if not self.is_stopped:
            self._fleet.connecting.add(task := asyncio.ensure_future(self._connected()))
            task.add_done_callback(self._fleet.connecting.discard)

    async def _connected(self) -> None:
        wire = self._wire
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, wire.address, wire.port, ssl=wire.tls)
        except OSError as error:
            self._fleet.fail(f"no connection: {error}")
            asyncio.get_running_loop().call_later(1, self._connect)


def _proof(key: Ed25519PrivateKey, node_id: str) -> dict[str, Any]:
    timestamp_s, nonce = int(time.time()), secrets.token_hex(16)
    signature = key.sign(f"gpuaas-node-token\n{node_id}\n{timestamp_s}\n{nonce}".encode())
    message = {"node_id": node_id, "timestamp_s": timestamp_s, "nonce": nonce}
    return {**message, "signature": base64.b64encode(signature).decode()}


def _facts(number: int) -> dict[str, Any]:
    return {
        "hostname": f"node-{number}",
        "cpus": 128,
        "memory_mb": 2_000_000,
        "gpus": [{"index": index, "type": "H100", "device": f"/dev/nvidia{index}"} for index in range(8)],
        "os": "Debian GNU/Linux 13 (trixie)",
        "kernel": "6.12.0-amd64",
        "architecture": "x86_64",
        "disk_gb": 30_000,
        "addresses": [f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"],
    }


@dataclass(frozen=True)
class Wire:
    """A minimal client, so that its own cost affects the measurement as little as possible."""

    address: str
    port: int
    tls: ssl.SSLContext | None = None
    admin_token: str = ""

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.address, self.port, ssl=self.tls)

    def request(self, method: str, path: str, body: bytes, token: str) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.address}:{self.port}", f"Content-Length: {len(body)}"]
        lines += ["Content-Type: application/json", f"X-Idempotency-Key: {secrets.token_hex(16)}"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        return "\r\n".join([*lines, "", ""]).encode() + body


class Line:
    """A connection that is kept between requests; after a failure the next request opens a new one."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def call(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        try:
            answer: dict[str, Any] = json.loads(await self.send("POST", path, json.dumps(body).encode(), token))
        except FAILURES as error:
            raise SystemExit(f"bench: {path}: {error or type(error).__name__}") from error
        return answer

    async def send(self, method: str, path: str, body: bytes, token: str) -> bytes:
        reader, writer = self._ends = self._ends or await self._wire.open()
        try:
            writer.write(self._wire.request(method, path, body, token))
            head = await reader.readuntil(b"\r\n\r\n")
            content = await reader.readexactly(_content_length(head))
        except BaseException:
            self.close()
            raise
        if not head.startswith(b"HTTP/1.1 2"):
            raise Refused(f"{method} {path}: {head.splitlines()[0].decode()} {content.decode()}")
        return content

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None


def _content_length(head: bytes) -> int:
    name = b"content-length:"
    return next((int(line[len(name) :]) for line in head.lower().splitlines() if line.startswith(name)), 0)


def own_address() -> str:
    """Return an address of this host, because the server uses no TLS on loopback. No packet is sent for this."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address


def tls(plain_port: int) -> ssl.SSLContext:
    trust = httpx.get(f"http://127.0.0.1:{plain_port}/node/v1/trust").json()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=trust["ca_pem"])
    return context


class Refused(Exception):
    """The server answered with an error."""


FAILURES = (OSError, asyncio.IncompleteReadError, Refused)


async def busy_share(pid: int, seconds: float) -> float:
    """Return the part of one core that the process uses during this time."""
    before_s, since_s = api.cpu_s(pid), time.perf_counter()
    await asyncio.sleep(seconds)
    return (api.cpu_s(pid) - before_s) / (time.perf_counter() - since_s)


def _lost_count(data: Path) -> int:
    """Count the events of lost nodes, which include nodes that are ready again."""
    with contextlib.closing(sqlite3.connect(data / "gpuaas.sqlite")) as store:
        lost = "document ->> 'type' = 'capacity.node.changed' AND document ->> '$.payload.status' = 'lost'"
        count: int = store.execute(f"SELECT count(*) FROM events WHERE {lost}").fetchone()[0]
        return count
