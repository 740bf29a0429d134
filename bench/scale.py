"""Measure two servers on one PostgreSQL database with 1,000 and with 10,000 nodes that each have ten members.

Every node sends heartbeats over TLS, half of them to each server. At the same time, 50 operations per second are
requested through one server and carried out by controllers at the other, and watchers at both receive the events.
Everything shares the machine, the load and the database too, so the table shows what its cores can do together. It
takes about ten minutes: python -m bench scale
"""

import argparse
import asyncio
import contextlib
import datetime
import itertools
import json
import resource
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import uvloop

from bench import api, fleet, records
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS
from bench.sides import Side, stores
from bench.usage import Shares, Usage
from bench.watchers import Watcher, resident_kb

CONTROLLERS = 16
_PLAIN_PORTS, _NODE_PORTS = (7181, 7182), (7183, 7184)


def run(arguments: Sequence[str] = ()) -> None:
    options = _parser().parse_args(arguments)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # each simulated node has a connection
    measured = {}
    with stores(as_in_production=True) as by_name:
        folder, database_url = by_name["PostgreSQL"]
        for count in options.nodes:
            measured[count] = _measured(count, folder / str(count), database_url(f"scale_{count}"), options)
    for count in options.nodes[1:]:
        first, many = measured[options.nodes[0]], measured[count]
        print(
            f"{count:,} / {options.nodes[0]:,} nodes: processor time per node"
            f" {many.cpu_ms_per_node / first.cpu_ms_per_node:.2f},"
            f" memory per node {many.kb_per_node / first.kb_per_node:.2f},"
            f" processor time per operation {many.cpu_ms_per_operation / first.cpu_ms_per_operation:.2f}"
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench scale", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 10_000], help="sizes to compare")
    parser.add_argument("--operations-per-s", type=int, default=50)
    parser.add_argument("--watchers", type=int, default=10, help="watchers of the project, at each server")
    parser.add_argument("--warm-s", type=float, default=30.0)
    parser.add_argument("--measured-s", type=float, default=60.0)
    return parser


@dataclass
class Measured(fleet.Fleet):
    requested: int = 0
    refused: int = 0
    took_s: list[float] = field(default_factory=list)
    """Seconds from the request of an operation to its end."""
    watched_s: list[float] = field(default_factory=list)
    """Seconds from the request of a change to its event at a watcher."""
    work_s: float = 0.0
    """Seconds from the first request of an operation to the end of the last."""
    cpu_ms_per_node: float = 0.0
    cpu_ms_per_operation: float = 0.0
    kb_per_node: float = 0.0


def _measured(count: int, data: Path, database_url: str, options: argparse.Namespace) -> Measured:
    side = Side(count, data, database_url, _PLAIN_PORTS[0])
    with side.serve():
        side.make_project()
        side.register_app(records.APP)
    of_project = (side.org_id, side.project_id)
    side.insert(INSTANCE_ROWS, lambda: records.instances(*of_project, count))
    side.insert(MEMBER_ROWS, lambda: records.members(*of_project, count))
    with _servers(data, database_url) as pids:
        return uvloop.run(_run(count, side, pids, options))


@contextlib.contextmanager
def _servers(data: Path, database_url: str) -> Iterator[list[int]]:
    address = fleet.own_address()
    with contextlib.ExitStack() as stack:
        pids = []
        for plain, nodes in zip(_PLAIN_PORTS, _NODE_PORTS, strict=True):
            command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(data)]
            command += ["--database", database_url, "--rate-limit-per-s", "0", "--streams-per-caller", "0"]
            command += ["--heartbeat-interval-s", f"{fleet.INTERVAL_S:g}"]
            command += ["--listen", f"127.0.0.1:{plain}", "--listen", f"{address}:{nodes}"]
            pids.append(stack.enter_context(api.process(command, plain, core=None)).pid)
        yield pids


async def _run(count: int, side: Side, pids: list[int], options: argparse.Namespace) -> Measured:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
    measured, usage = Measured(), Usage(pids, side.database_url)
    warm = await _enrol(range(fleet.WARM_AGENTS), side, measured)
    await asyncio.sleep(fleet.WARM_S)
    idle, idle_kb = await usage.during(fleet.IDLE_S), sum(resident_kb(pid) for pid in pids)
    started_s = time.perf_counter()
    agents = await _enrol(range(fleet.WARM_AGENTS, fleet.WARM_AGENTS + count), side, measured)
    print(f"{count:,} nodes enrolled in {time.perf_counter() - started_s:.0f} s", file=sys.stderr, flush=True)
    await asyncio.sleep(options.warm_s)
    measured.beats_ms.clear()
    nodes_only = await usage.during(options.measured_s / 2)
    measured.cpu_ms_per_node = (nodes_only.platform - idle.platform) * fleet.INTERVAL_S * 1000 / count
    measured.kb_per_node = (sum(resident_kb(pid) for pid in pids) - idle_kb) / count
    _print_beats(f"{count:,} nodes, nothing else", measured)
    print(
        f"  {nodes_only}; {measured.kb_per_node:.1f} kB per node and"
        f" {measured.cpu_ms_per_node:.2f} ms of servers and database per node in {fleet.INTERVAL_S:.0f} s"
    )
    measured.beats_ms.clear()
    watchers = [await _watch(server, side, measured) for server in (0, 1) for _ in range(options.watchers)]
    working = usage.started()
    await Work(side, measured, options.operations_per_s).run(options.measured_s)
    busy = working()
    _print_beats(f"{count:,} nodes, {count * records.MEMBERS_EACH:,} members, with operations", measured)
    _print_work(measured, options, busy, nodes_only)
    print(
        f"  {sum(resident_kb(pid) for pid in pids) / 1024:.0f} MB in both servers;"
        f" {await _lost_count(side.database_url)} nodes marked as lost",
        flush=True,
    )
    for watcher in watchers:
        watcher.transport.abort()
    for agent in [*warm, *agents]:
        agent.stop()
    return measured


async def _enrol(numbers: range, side: Side, measured: Measured) -> list[fleet.Agent]:
    """Enrol agents through both servers; half of them then send their heartbeats to each."""
    address, tls, half = fleet.own_address(), fleet.tls(_PLAIN_PORTS[0]), len(numbers) // 2
    desks = [fleet.Wire("127.0.0.1", port, None, side.admin_token) for port in _PLAIN_PORTS]
    wires = [fleet.Wire(address, port, tls) for port in _NODE_PORTS]
    halves = (numbers[:half], numbers[half:])
    enrolled = await asyncio.gather(
        *(fleet.enrol_all(*each, measured) for each in zip(halves, desks, wires, strict=True))
    )
    return [agent for some in enrolled for agent in some]


async def _watch(server: int, side: Side, measured: Measured) -> Watcher:
    path, port = f"/api/v1/projects/{side.project_id}/events/stream", _PLAIN_PORTS[server]
    watcher = await Watcher.opened(port, path, side.admin_token)
    watcher.on_event = lambda data: measured.watched_s.append(_age_s(data))
    return watcher


def _age_s(frames: bytes) -> float:
    """Return the seconds since the first of these events occurred; to parse all would load the machine more."""
    document = json.loads(frames.partition(b"data: ")[2].partition(b"\n")[0])
    occurred_at = datetime.datetime.fromisoformat(document["occurred_at"])
    return (datetime.datetime.now(datetime.UTC) - occurred_at).total_seconds()


def _print_beats(title: str, measured: Measured) -> None:
    print(f"{title}: {len(measured.beats_ms)} heartbeats, {_spread(measured.beats_ms)}; {measured.failures} failed")


def _print_work(measured: Measured, options: argparse.Namespace, busy: Shares, before: Shares) -> None:
    rate = len(measured.took_s) / measured.work_s
    measured.cpu_ms_per_operation = (busy.platform - before.platform) * 1000 / rate
    print(
        f"  {rate:.1f} operations per second carried out of {options.operations_per_s} requested,"
        f" {_spread([took_s * 1000 for took_s in measured.took_s])}; {measured.refused} refused;"
        f" {measured.cpu_ms_per_operation:.1f} ms of servers and database per operation\n"
        f"  {2 * options.watchers} watchers: from a change to its event"
        f" {_spread([watched_s * 1000 for watched_s in measured.watched_s])}\n"
        f"  {busy}"
    )


def _spread(values_ms: list[float]) -> str:
    ordered = sorted(values_ms)
    p99 = ordered[len(ordered) * 99 // 100]
    return f"p50 {statistics.median(ordered):.1f} ms, p99 {p99:.1f} ms, worst {ordered[-1]:.1f} ms"


class Work:
    """Requests operations at a fixed rate through the first server; controllers at the second carry them out."""

    def __init__(self, side: Side, measured: Measured, per_s: int) -> None:
        self._per_s = per_s
        self._side, self._measured, self._accepted, self._all_ended = side, measured, 0, asyncio.Event()
        self._project = f"/api/v1/projects/{side.project_id}"

    async def run(self, seconds: float) -> None:
        controllers = [asyncio.create_task(self._control()) for _ in range(CONTROLLERS)]
        lines, started_s = itertools.cycle([self._line(0) for _ in range(CONTROLLERS)]), time.perf_counter()
        requests = []
        for number in range(int(seconds * self._per_s)):
            await asyncio.sleep(started_s + number / self._per_s - time.perf_counter())
            requests.append(asyncio.create_task(self._request(number, next(lines))))
        self._accepted = sum(await asyncio.gather(*requests))
        self._note_ended()
        ended = asyncio.create_task(self._all_ended.wait())
        await asyncio.wait([ended, *controllers], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        self._measured.work_s = time.perf_counter() - started_s
        for controller in controllers:
            controller.cancel()
        stopped = await asyncio.gather(*controllers, return_exceptions=True)
        failed = [repr(why) for why in stopped if not isinstance(why, asyncio.CancelledError)]
        if failed:
            raise SystemExit(f"bench: a controller failed: {failed[0]}")
        if not ended.done():
            ended.cancel()
            print(f"  not carried out after twice the time: {self._accepted - len(self._measured.took_s)} operations")

    def _line(self, server: int) -> "SharedLine":
        return SharedLine(fleet.Wire("127.0.0.1", _PLAIN_PORTS[server]))

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
