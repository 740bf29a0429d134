"""Measure two servers on one PostgreSQL database with 1,000 and with 10,000 nodes that each have ten members.

Every node sends heartbeats over TLS, half of them to each server. At the same time, 50 operations per second are
requested through one server and carried out by controllers at the other. Everything shares the machine, the load too,
so the table shows what two cores can do. It takes about ten minutes: python -m bench scale
"""

import asyncio
import contextlib
import datetime
import itertools
import json
import statistics
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench import api, fleet, records
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS
from bench.sides import Side, stores
from bench.watchers import resident_kb

FLEETS = (1_000, 10_000)
OPERATIONS_PER_S = 50
CONTROLLERS = 16
WARM_S, MEASURED_S = 30.0, 60.0
_PLAIN_PORTS, _NODE_PORTS = (7181, 7182), (7183, 7184)


def run() -> None:
    measured = {}
    with stores() as by_name:
        folder, database_url = by_name["PostgreSQL"]
        for count in FLEETS:
            measured[count] = _measured(count, folder / str(count), database_url(f"scale_{count}"))
    few, many = (measured[count] for count in FLEETS)
    print(
        f"{FLEETS[1]:,} / {FLEETS[0]:,} nodes: processor time per node"
        f" {many.cpu_ms_per_node / few.cpu_ms_per_node:.2f}, memory per node: {many.kb_per_node / few.kb_per_node:.2f}"
    )


@dataclass
class Measured(fleet.Fleet):
    requested: int = 0
    refused: int = 0
    took_s: list[float] = field(default_factory=list)
    """Seconds from the request of an operation to its end."""
    cpu_ms_per_node: float = 0.0
    kb_per_node: float = 0.0


def _measured(count: int, data: Path, database_url: str) -> Measured:
    side = Side(count, data, database_url, _PLAIN_PORTS[0])
    with side.serve():
        side.make_project()
        side.register_app(records.APP)
    of_project = (side.org_id, side.project_id)
    side.insert(INSTANCE_ROWS, lambda: records.instances(*of_project, count))
    side.insert(MEMBER_ROWS, lambda: records.members(*of_project, count))
    with _servers(data, database_url) as pids:
        return uvloop.run(_run(count, side, pids))


@contextlib.contextmanager
def _servers(data: Path, database_url: str) -> Iterator[list[int]]:
    address = fleet.own_address()
    with contextlib.ExitStack() as stack:
        pids = []
        for core, (plain, nodes) in enumerate(zip(_PLAIN_PORTS, _NODE_PORTS, strict=True)):
            command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(data)]
            command += ["--database", database_url, "--rate-limit-per-s", "0"]
            command += ["--heartbeat-interval-s", f"{fleet.INTERVAL_S:g}"]
            command += ["--listen", f"127.0.0.1:{plain}", "--listen", f"{address}:{nodes}"]
            pids.append(stack.enter_context(api.process(command, plain, core)).pid)
        yield pids


async def _run(count: int, side: Side, pids: list[int]) -> Measured:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    measured = Measured()
    idle_share = sum(await asyncio.gather(*(fleet.busy_share(pid, fleet.IDLE_S) for pid in pids)))
    idle_kb = sum(resident_kb(pid) for pid in pids)
    turns, enrolled = asyncio.Semaphore(fleet.ENROL_AT_ONCE), asyncio.Barrier(count + 1)
    address, tls = fleet.own_address(), fleet.tls(_PLAIN_PORTS[0])
    wires = [fleet.Wire(address, port, tls, side.admin_token) for port in _NODE_PORTS]
    agents = [
        asyncio.create_task(fleet.live(number, wires[number % 2], measured, turns, enrolled)) for number in range(count)
    ]
    started_s = time.perf_counter()
    await enrolled.wait()
    print(f"{count:,} nodes enrolled in {time.perf_counter() - started_s:.0f} s", file=sys.stderr, flush=True)
    await asyncio.sleep(WARM_S)
    measured.beats_ms.clear()
    nodes_share = sum(await asyncio.gather(*(fleet.busy_share(pid, MEASURED_S / 2) for pid in pids))) - idle_share
    measured.cpu_ms_per_node = nodes_share * fleet.INTERVAL_S * 1000 / count
    measured.kb_per_node = (sum(resident_kb(pid) for pid in pids) - idle_kb) / count
    _print_beats(f"{count:,} nodes, nothing else", measured)
    measured.beats_ms.clear()
    work = Work(side, measured)
    busy = asyncio.gather(*(fleet.busy_share(pid, MEASURED_S) for pid in pids))
    await work.run(MEASURED_S)
    _print_beats(f"{count:,} nodes, {count * records.MEMBERS_EACH:,} members, with operations", measured)
    took_s = sorted(measured.took_s)
    print(
        f"  {len(took_s) / MEASURED_S:.1f} operations per second carried out of {OPERATIONS_PER_S} requested,"
        f" p50 {statistics.median(took_s) * 1000:.0f} ms, p99 {took_s[len(took_s) * 99 // 100] * 1000:.0f} ms;"
        f" {measured.refused} refused; servers {' and '.join(f'{share:.0%}' for share in await busy)} of a core;"
        f" {sum(resident_kb(pid) for pid in pids) / 1024:.0f} MB, {measured.kb_per_node:.0f} kB per node;"
        f" {measured.cpu_ms_per_node:.2f} ms of CPU per node in {fleet.INTERVAL_S:.0f} s;"
        f" {await _lost_count(side.database_url)} nodes marked as lost",
        flush=True,
    )
    for agent in agents:
        agent.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    return measured


def _print_beats(title: str, measured: Measured) -> None:
    beats_ms = sorted(measured.beats_ms)
    print(
        f"{title}: {len(beats_ms)} heartbeats, p50 {statistics.median(beats_ms):.1f} ms,"
        f" p99 {beats_ms[len(beats_ms) * 99 // 100]:.1f} ms, worst {beats_ms[-1]:.1f} ms; {measured.failures} failed",
        flush=True,
    )


class Work:
    """Requests operations at a fixed rate through the first server; controllers at the second carry them out."""

    def __init__(self, side: Side, measured: Measured) -> None:
        self._side, self._measured, self._accepted, self._all_ended = side, measured, 0, asyncio.Event()
        self._project = f"/api/v1/projects/{side.project_id}"

    async def run(self, seconds: float) -> None:
        controllers = [asyncio.create_task(self._control()) for _ in range(CONTROLLERS)]
        lines, started_s = itertools.cycle([self._line(0) for _ in range(CONTROLLERS)]), time.perf_counter()
        requests = []
        for number in range(int(seconds * OPERATIONS_PER_S)):
            await asyncio.sleep(started_s + number / OPERATIONS_PER_S - time.perf_counter())
            requests.append(asyncio.create_task(self._request(number, next(lines))))
        self._accepted = sum(await asyncio.gather(*requests))
        self._note_ended()
        ended = asyncio.create_task(self._all_ended.wait())
        await asyncio.wait([ended, *controllers], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for controller in controllers:
            controller.cancel()
        stopped = await asyncio.gather(*controllers, return_exceptions=True)
        failed = [repr(why) for why in stopped if not isinstance(why, asyncio.CancelledError)]
        if failed or not ended.done():
            why = failed[0] if failed else "it took too long"
            raise SystemExit(f"bench: {len(self._measured.took_s)} of {self._accepted} operations ended: {why}")

    def _line(self, server: int) -> "SharedLine":
        return SharedLine(fleet.Wire("127.0.0.1", _PLAIN_PORTS[server], None, ""))

    async def _request(self, number: int, line: "SharedLine") -> bool:
        """Request an operation; return whether it was accepted. Each is about another instance, as far as there are."""
        self._measured.requested += 1
        of_instance, turn = number % self._side.size, number // self._side.size
        member_id = records.member_id(of_instance * records.MEMBERS_EACH + turn)
        body = {"kind": "drain", "component_key": records.ROLE, "member_ids": [member_id]}
        path = f"{self._project}/app-instances/{records.instance_id(of_instance)}/member-operations"
        try:
            await line.send("POST", path, body, self._side.admin_token)
        except fleet.FAILURES:
            self._measured.refused += 1
            return False
        return True

    async def _control(self) -> None:
        line, token = self._line(1), self._side.token
        while True:
            claim = {"app_slug": records.APP, "holder": "bench", "claim_id": uuid.uuid4().hex, "lease_s": 60}
            claimed = await line.send("POST", f"{self._project}/operations/claim", {**claim, "wait_s": 5}, token)
            operation = claimed.get("operation")
            if operation is None:
                continue
            path, epoch = f"{self._project}/operations/{operation['operation_id']}", {"epoch": claimed["epoch"]}
            now = datetime.datetime.now(datetime.UTC).isoformat()
            member = f"{path}/members/{operation['targets'][0]['member_id']}"
            await line.send("PUT", member, {**epoch, "status": "draining"}, token)
            evidence = {"state": "idle", "source": "bench", "observed_at": now}
            await line.send("PUT", member, {**epoch, "status": "drained", "evidence": evidence}, token)
            ended = await line.send("PUT", f"{path}/complete", epoch, token)
            took = datetime.datetime.fromisoformat(ended["ended_at"]) - datetime.datetime.fromisoformat(
                ended["created_at"]
            )
            self._measured.took_s.append(took.total_seconds())
            self._note_ended()

    def _note_ended(self) -> None:
        if self._accepted and len(self._measured.took_s) == self._accepted:
            self._all_ended.set()


class SharedLine:
    """A connection that several tasks use in turns."""

    def __init__(self, wire: fleet.Wire) -> None:
        self._line, self._turn = fleet.Line(wire), asyncio.Lock()

    async def send(self, method: str, path: str, body: dict[str, Any], token: str) -> dict[str, Any]:
        async with self._turn:
            answer: dict[str, Any] = json.loads(await self._line.send(method, path, json.dumps(body).encode(), token))
            return answer


async def _lost_count(database_url: str) -> int:
    connection = await asyncpg.connect(database_url)
    try:
        lost = (
            "document::json ->> 'type' = 'capacity.node.changed' AND document::json -> 'payload' ->> 'status' = 'lost'"
        )
        return int(await connection.fetchval(f"SELECT count(*) FROM events WHERE {lost}"))
    finally:
        await connection.close()
