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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    cpu_ms_per_agent: float = 0.0


def _measured(count: int) -> Fleet:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        password, address = api.admin_password(Path(folder)), own_address()
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", folder, "--rate-limit-per-s", "0"]
        command += ["--listen", f"127.0.0.1:{_ADMIN_PORT}", "--listen", f"{address}:{_NODES_PORT}"]
        server = api.process(command, _ADMIN_PORT)
        with server:
            wire = Wire(address, _NODES_PORT, tls(_ADMIN_PORT), api.login(password, _ADMIN_PORT))
            fleet = uvloop.run(_run_fleet(count, wire, server.pid))
        fleet.beats_ms.sort()
        print(
            f"{count} agents: {len(fleet.beats_ms)} heartbeats, p50 {statistics.median(fleet.beats_ms):.1f} ms,"
            f" p99 {fleet.beats_ms[len(fleet.beats_ms) * 99 // 100]:.1f} ms, worst {fleet.beats_ms[-1]:.1f} ms;"
            f" {fleet.failures} failed, {_lost_count(Path(folder))} marked as lost;"
            f" server {fleet.server_mb:.0f} MB,"
            f" {fleet.cpu_ms_per_agent:.2f} ms of CPU per agent in {INTERVAL_S:.0f} s",
            flush=True,
        )
        return fleet


async def _run_fleet(count: int, wire: "Wire", server_pid: int) -> Fleet:
    # uvloop reports an error if both sides close a TLS connection at the same time, which agents and server do here.
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    idle_share = await busy_share(server_pid, IDLE_S)
    fleet, turns, enrolled = Fleet(), asyncio.Semaphore(ENROL_AT_ONCE), asyncio.Barrier(count + 1)
    agents = [asyncio.create_task(live(number, wire, fleet, turns, enrolled)) for number in range(count)]
    await enrolled.wait()
    await asyncio.sleep(WARM_S)
    fleet.beats_ms.clear()
    share = await busy_share(server_pid, MEASURED_S) - idle_share
    fleet.cpu_ms_per_agent = share * INTERVAL_S * 1000 / count
    fleet.server_mb = watchers.resident_kb(server_pid) / 1024
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    return fleet


async def live(number: int, wire: "Wire", fleet: Fleet, turns: asyncio.Semaphore, enrolled: asyncio.Barrier) -> None:
    """Enrol the agent and send heartbeats immediately: otherwise nodes would be lost before the last is enrolled."""
    async with turns:
        agent = await _enrol(number, wire)
    await asyncio.gather(agent.live(fleet), enrolled.wait())


@dataclass
class Agent:
    wire: "Wire"
    node_token: str
    status: bytes

    async def live(self, fleet: Fleet) -> None:
        await asyncio.sleep(random.uniform(0, INTERVAL_S))
        line = Line(self.wire)
        while True:
            started_s = time.perf_counter()
            with _counted(fleet):
                await line.send("PUT", f"/node/v1/status?wait_s={INTERVAL_S:g}", self.status, self.node_token)
                fleet.beats_ms.append((time.perf_counter() - started_s - INTERVAL_S) * 1000)
            if time.perf_counter() - started_s < INTERVAL_S / 2:
                await asyncio.sleep(1)  # refused or cut off


async def _enrol(number: int, wire: "Wire") -> Agent:
    key, name, facts = Ed25519PrivateKey.generate(), f"node-{number}", _facts(number)
    public_key_pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    admission = await wire.call("/api/v1/admin/enrolment-tokens", {"name": name}, wire.admin_token)
    request = {"token": admission["token"], "name": name, "public_key_pem": public_key_pem, "facts": facts}
    node = await wire.call("/node/v1/enrol", {**request, "ssh_host_public_key": f"ssh-ed25519 AAAA{number}"})
    token = await wire.call("/node/v1/token", _proof(key, node["node_id"]))
    status = {"agent_version": "1.0.0", "boot_id": f"boot-{number}", "facts": facts}
    return Agent(wire, token["access_token"], json.dumps(status).encode())


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
    tls: ssl.SSLContext | None
    admin_token: str

    async def call(self, path: str, body: dict[str, Any], token: str = "") -> dict[str, Any]:
        line = Line(self)
        try:
            answer: dict[str, Any] = json.loads(await line.send("POST", path, json.dumps(body).encode(), token))
        except FAILURES as error:
            raise SystemExit(f"bench: {path}: {error or type(error).__name__}") from error
        finally:
            line.close()
        return answer

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


@contextlib.contextmanager
def _counted(fleet: Fleet) -> Iterator[None]:
    try:
        yield
    except FAILURES as error:
        fleet.failures += 1
        if fleet.failures == 1:
            print(f"first failure: {error or type(error).__name__}", file=sys.stderr)


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
