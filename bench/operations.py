"""Compare the same requests of controllers and users on a small and on a large record, on both stores, in turns.

The small record has 100 instances, 1,000 members and 10,000 operations; the large one has a hundred times as many. All
are in one project. One instance in ten has an operation that another controller has claimed. Then the time per report
is compared for operations with 3 and with 1,024 members, and the cost of 500 controllers that wait is measured.

It takes two to five minutes and 3 GB of disk: python -m bench operations
"""

import asyncio
import contextlib
import itertools
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench import records, reports
from bench.api import cpu_s
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS, OPERATION_ROWS, page_token
from bench.records import MEMBERS_EACH, OPERATIONS_EACH
from bench.sides import DatabaseUrl, Side, stores
from bench.watchers import resident_kb

SMALL, LARGE = 100, 10_000
"""The number of instances in each record."""
REQUESTS = 200
IDLE_CONTROLLERS, IDLE_S = 500, 10
PAGE = 50
_IDLE_APP = f"{records.APP}-idle"
_PORTS = {SMALL: 7175, LARGE: 7176}

Ask = Callable[[Side], object]


def run() -> None:
    with stores() as by_name:
        for name, (folder, database_url) in by_name.items():
            _on_store(name, folder, database_url)


def _on_store(title: str, folder: Path, database_url: DatabaseUrl) -> None:
    with contextlib.ExitStack() as servers:
        small, large = (
            servers.enter_context(_side(folder / str(size), database_url(f"bench_{size}"), size))
            for size in (SMALL, LARGE)
        )
        print(f"\n{title:34}{SMALL:>9,}{LARGE:>9,} instances, ms{'ratio':>7}{'of the fastest quarter':>26}")
        for name, ask in CASES.items():
            if name == CLAIM_WAITING:
                _add_waiting(small)
                _add_waiting(large)
            (small_quick, small_ms), (large_quick, large_ms) = _compare(ask, small, large)
            ratios = f"{large_ms / small_ms:21.2f}{large_quick / small_quick:26.2f}"
            print(f"{name:34}{small_ms:9.2f}{large_ms:9.2f}{ratios}", flush=True)
        reports.run(small)
        asyncio.run(_idle(small))


@contextlib.contextmanager
def _side(data: Path, database_url: str, size: int) -> Iterator[Side]:
    side = Side(size, data, database_url, _PORTS[size])
    with side.serve():
        side.make_project()
        side.register_app(records.APP)
        side.register_app(_IDLE_APP)
    started_s = time.perf_counter()
    of_project = (side.org_id, side.project_id)
    side.insert(INSTANCE_ROWS, lambda: records.instances(*of_project, size))
    side.insert(MEMBER_ROWS, lambda: records.members(*of_project, size))
    side.insert(OPERATION_ROWS, lambda: records.operations(*of_project, size))
    print(f"wrote {size:,} instances in {time.perf_counter() - started_s:.0f} s", file=sys.stderr, flush=True)
    server = side.serve()
    with server:
        side.server_pid = server.pid
        yield side


def _add_waiting(side: Side) -> None:
    """Add as many unclaimed operations as will be claimed. They are newer than all others."""
    first = side.size * OPERATIONS_EACH
    side.insert(
        OPERATION_ROWS,
        lambda: records.waiting_operations(side.org_id, side.project_id, first, REQUESTS, SMALL),
    )


def _compare(ask: Ask, small: Side, large: Side) -> list[tuple[float, float]]:
    """Send the request to both in turns, so that other work on the machine affects both.

    Return the first quartile and the median of each, in ms. On a busy machine, the quartile is less disturbed."""
    taken_s: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for _, side in itertools.product(range(REQUESTS), (small, large)):
        started_s = time.perf_counter()
        ask(side)
        taken_s[side.size].append(time.perf_counter() - started_s)
    quartiles = [statistics.quantiles(taken_s[size], n=4) for size in (SMALL, LARGE)]
    return [(quarter * 1000, median * 1000) for quarter, median, _ in quartiles]


def _claim(side: Side) -> dict[str, Any]:
    body = {"app_slug": records.APP, "holder": "bench", "claim_id": uuid.uuid4().hex, "lease_s": 60}
    claim: dict[str, Any] = side.send("POST", "/operations/claim", body)
    return claim


def _claim_nothing(side: Side) -> None:
    if _claim(side)["operation"]:
        raise SystemExit("bench: an operation was claimed, but there should be none to claim")


def _claim_waiting(side: Side) -> None:
    side.claim = _claim(side)
    if not side.claim["operation"]:
        raise SystemExit("bench: no operation was claimed, but there should be one")


def _heartbeat(side: Side) -> None:
    operation_id = side.claim["operation"]["operation_id"]
    side.send("PUT", f"/operations/{operation_id}/lease", {"epoch": side.claim["epoch"], "lease_s": 60})


def _middle(side: Side) -> str:
    return f"/app-instances/{records.instance_id(side.size // 2)}"


def _middle_operation(side: Side) -> str:
    return records.operation_id(side.size // 2 * OPERATIONS_EACH)


def _page_in_the_middle(side: Side, path: str, table: str, key: str) -> None:
    page = side.send("GET", path, page_size=PAGE, page_token=page_token(table, key))
    if len(page["items"]) != PAGE:
        raise SystemExit(f"bench: a page of {path} has {len(page['items'])} items instead of {PAGE}")


CLAIM_WAITING = "claim, something waits"
CASES: dict[str, Ask] = {
    "claim, nothing waits": _claim_nothing,
    CLAIM_WAITING: _claim_waiting,
    "heartbeat": _heartbeat,
    "instance, by id": lambda side: side.send("GET", _middle(side)),
    "instance, by name": lambda side: side.send("GET", f"/app-instances/bench-{side.size // 2}"),
    "instances, page in the middle": lambda side: _page_in_the_middle(
        side, "/app-instances", "instances", records.instance_id(side.size // 2 - 1)
    ),
    "member": lambda side: side.send(
        "GET", f"{_middle(side)}/members/{records.member_id(side.size // 2 * MEMBERS_EACH)}"
    ),
    "members of an instance": lambda side: side.send("GET", f"{_middle(side)}/members"),
    "operation": lambda side: side.send("GET", f"/operations/{_middle_operation(side)}"),
    "operations, page in the middle": lambda side: _page_in_the_middle(
        side, "/operations", "operations", _middle_operation(side)
    ),
    "operations of an instance": lambda side: side.send(
        "GET", "/operations", page_size=PAGE, instance_id=records.instance_id(side.size // 2)
    ),
}


async def _idle(side: Side) -> None:
    """Measure the memory and processor time that waiting controllers cost the server."""
    warm = [await _wait_for_work(side, f"warm-{number}") for number in range(20)]
    before_kb = resident_kb(side.server_pid)
    waiting = [await _wait_for_work(side, f"idle-{number}") for number in range(IDLE_CONTROLLERS)]
    await asyncio.sleep(5)  # so that the server has received all requests and searched for operations
    if len(side.send("GET", "/controllers", page_size=500)["items"]) != 500:
        raise SystemExit("bench: the server has not recorded all controllers, so the measurement is not valid")
    before_s = cpu_s(side.server_pid)
    await asyncio.sleep(IDLE_S)
    busy = (cpu_s(side.server_pid) - before_s) / IDLE_S
    grown_mb = (resident_kb(side.server_pid) - before_kb) / 1024
    print(f"{IDLE_CONTROLLERS} controllers waiting: {grown_mb:.1f} MB more, {busy:.0%} of a core")
    for writer in [*warm, *waiting]:
        writer.close()


async def _wait_for_work(side: Side, holder: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", side.port)
    body = f'{{"app_slug": "{_IDLE_APP}", "holder": "{holder}", "claim_id": "{holder}", "wait_s": 30}}'
    writer.write(
        f"POST /api/v1/projects/{side.project_id}/operations/claim HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {side.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    return writer
