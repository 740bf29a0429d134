"""Compare 1, 2 and 4 servers on one PostgreSQL database: rates, the time until watchers get an event, and a failover.

The clients and the database share the machine with the servers, so more servers than cores add nothing but spread.
It takes about three minutes: python -m bench processes
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import re
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from bench import api, fleet
from bench.sides import Side, stores
from bench.usage import Usage
from bench.watchers import Watcher

CONNECTIONS = 64
EVENTS = 200
WRITERS = 16
KILL_AFTER_S = 2.0
_PORTS = range(7185, 7189)


def run(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench processes", description=__doc__)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=int, default=6, help="of each measurement of a rate")
    options = parser.parse_args(arguments)
    api.install_wrk()
    with stores(as_in_production=True) as by_name:
        folder, database_url = by_name["PostgreSQL"]
        for count in options.processes:
            _measure(count, folder / str(count), database_url(f"processes_{count}"), options.seconds)


def _measure(count: int, data: Path, database_url: str, seconds: int) -> None:
    side = Side(0, data, database_url, _PORTS[0])
    with side.serve():
        side.make_project()
        account = side.post(_accounts(side), name="read")["service_account_id"]
    with _servers(count, data, database_url) as servers:
        path, pids = f"/api/v1{_accounts(side)}", [server.pid for server in servers]
        posts, posts_use = _rate(pids, side, path, seconds, post=True)
        gets, gets_use = _rate(pids, side, f"{path}/{account}", seconds, post=False)
        print(f"{count} servers: {posts:.0f} durable POST/s ({posts_use})\n  {gets:.0f} GET/s ({gets_use})", flush=True)
        print(f"  {uvloop.run(_watched(side, count))}", flush=True)
        if count > 1:
            print(f"  {uvloop.run(_failover(side, servers))}", flush=True)


@contextlib.contextmanager
def _servers(count: int, data: Path, database_url: str) -> Iterator[list[api.process]]:
    with contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(data)]
        command += ["--database", database_url, "--rate-limit-per-s", "0"]
        yield [
            stack.enter_context(api.process([*command, "--listen", f"127.0.0.1:{port}"], port, core=None))
            for port in _PORTS[:count]
        ]


def _accounts(side: Side) -> str:
    return f"/projects/{side.project_id}/service-accounts"


def _rate(pids: list[int], side: Side, path: str, seconds: int, *, post: bool) -> tuple[float, str]:
    """Load every server at the same time; return the rate of all together, and who used the processors."""

    def load(port: int) -> float:
        url, connections = f"http://127.0.0.1:{port}{path}", CONNECTIONS // len(pids)
        output = api.wrk(url, connections, side.admin_token, post=post, core=None, seconds=seconds)
        rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
        return float(rate[1]) if rate else 0.0

    async def measure() -> tuple[float, str]:
        usage = asyncio.create_task(Usage(pids, side.database_url).during(seconds))
        with ThreadPoolExecutor(len(pids)) as threads:
            loop = asyncio.get_running_loop()
            rates = await asyncio.gather(*(loop.run_in_executor(threads, load, port) for port in _PORTS[: len(pids)]))
        shares = await usage
        return sum(rates), f"parts of a core: servers {sum(shares.servers):.0%}, database {shares.database:.0%}"

    return asyncio.run(measure())


async def _watched(side: Side, count: int) -> str:
    """Publish through the first server and watch at the last one."""
    arrived: dict[str, asyncio.Future[float]] = {}

    def note(data: bytes) -> None:
        for name in re.findall(rb'"name":"(watched-\d+)"', data):
            future = arrived.get(name.decode())
            if future is not None and not future.done():
                future.set_result(time.perf_counter())

    path = f"/api/v1/projects/{side.project_id}/events/stream"
    watcher = await Watcher.opened(_PORTS[count - 1], path, side.admin_token)
    watcher.on_event = note
    line, took_ms = fleet.Line(fleet.Wire("127.0.0.1", _PORTS[0])), []
    for number in range(EVENTS):
        name = f"watched-{number}"
        arrived[name] = asyncio.get_running_loop().create_future()
        started_s = time.perf_counter()
        await line.call(f"/api/v1/projects/{side.project_id}/artifacts", _artifact(name), side.admin_token)
        async with asyncio.timeout(30):
            took_ms.append((await arrived[name] - started_s) * 1000)
    watcher.transport.abort()
    took_ms.sort()
    return (
        f"from a request at the first to its event at a watcher of the last server:"
        f" p50 {statistics.median(took_ms):.1f} ms, p99 {took_ms[len(took_ms) * 99 // 100]:.1f} ms"
    )


def _artifact(name: str) -> dict[str, object]:
    content = {"digest": f"sha256:{'0' * 64}", "size_bytes": 1, "media_type": "text/plain", "source": {"kind": "local"}}
    return {"name": name, **content}


async def _failover(side: Side, servers: list[api.process]) -> str:
    """Kill the first server with SIGKILL; its writers repeat their request at the next one with the same key."""
    answered_s: list[list[float]] = [[] for _ in range(WRITERS)]
    writers = [asyncio.create_task(_write(side, len(servers), number, answered_s[number])) for number in range(WRITERS)]
    await asyncio.sleep(KILL_AFTER_S)
    killed_s = time.perf_counter()
    servers[0].kill()
    await asyncio.sleep(KILL_AFTER_S)
    for writer in writers:
        writer.cancel()
    await asyncio.gather(*writers, return_exceptions=True)
    gaps_ms = [
        (next(at for at in times if at > killed_s) - max(at for at in times if at <= killed_s)) * 1000
        for times in answered_s[:: len(servers)]
    ]
    before_ms = [
        (later - earlier) * 1000
        for times in answered_s
        for earlier, later in itertools.pairwise(times)
        if later < killed_s
    ]
    return (
        f"failover: the writers of the killed server had an answer again after {statistics.median(gaps_ms):.1f} ms"
        f" (median), {max(gaps_ms):.1f} ms (worst); between two answers before: {statistics.median(before_ms):.1f} ms"
    )


async def _write(side: Side, count: int, number: int, answered_s: list[float]) -> None:
    ports = itertools.cycle([_PORTS[(number + offset) % count] for offset in range(count)])
    line = fleet.Line(fleet.Wire("127.0.0.1", next(ports)))
    while True:
        body = json.dumps({"name": f"writer-{uuid.uuid4().hex}"}).encode()
        while True:
            try:
                await line.send("POST", f"/api/v1{_accounts(side)}", body, side.admin_token)
                break
            except fleet.FAILURES:
                line = fleet.Line(fleet.Wire("127.0.0.1", next(ports)))
        answered_s.append(time.perf_counter())
