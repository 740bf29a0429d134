"""Does working on an operation cost more when a million older operations exist?

The same requests of controllers and people against a small and a large record, on both stores, in turns: 100 instances,
1,000 members and 10,000 operations against a hundred times as many, all in one project, one in ten instances with an
operation that a controller has claimed. Documents are made with the structs of the contract and written to the tables
in bulk: the benchmark measures reading them, not creating them. Then 500 controllers wait for work, and get none.

Takes two to five minutes and 3 GB of disk: python -m bench operations
"""

import asyncio
import contextlib
import datetime
import itertools
import os
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import httpx
from gpuaas_contract.instances import Instance, Member
from gpuaas_contract.operations import Lease, Operation, Progress, Step, Target
from gpuaas_platform.instances import store
from gpuaas_platform.kit import tables
from msgspec.structs import replace

from bench import api
from bench.watchers import resident_kb

sys.path.append(str(Path(__file__).parents[1] / "platform" / "tests"))
import postgres_server  # the tests' own PostgreSQL, from the locked wheel

SMALL, LARGE = 100, 10_000
"""Instances; ten members and a hundred operations each."""
MEMBERS_EACH, OPERATIONS_EACH = 10, 100
REQUESTS = 200
IDLE_CONTROLLERS, IDLE_S = 500, 10
PAGE = 50
_PORTS = {SMALL: 7175, LARGE: 7176}
_APP = "bench"
_NOW = datetime.datetime.now(datetime.UTC)
_LATER = _NOW + datetime.timedelta(days=1)


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        _on_store("SQLite", Path(folder, "sqlite"), lambda _: "")
    parent = Path(tempfile.mkdtemp(prefix="gpuaas-bench-"))
    parent.chmod(0o755)
    try:
        with postgres_server.running(parent / "pg") as url:
            _on_store("PostgreSQL", parent / "data", lambda name: _new_database(parent / "pg", url, name))
    finally:
        shutil.rmtree(parent)


def _new_database(folder: Path, url: str, name: str) -> str:
    postgres_server.create_database(folder, name)
    return url.format(database=name)


def _on_store(title: str, folder: Path, database_url: Callable[[str], str]) -> None:
    with contextlib.ExitStack() as servers:
        small, large = (
            servers.enter_context(_side(folder / str(size), database_url(f"bench_{size}"), size))
            for size in (SMALL, LARGE)
        )
        print(f"\n{title:34}{SMALL:>9,}{LARGE:>9,} instances, ms{'ratio':>9}{'of the fastest quarter':>26}")
        for name, ask in CASES.items():
            if name == CLAIM_WAITING:
                for side in (small, large):
                    side.insert(store.OPERATIONS, _waiting(side))
            (small_quick, small_ms), (large_quick, large_ms) = _compare(ask, small, large)
            ratios = f"{large_ms / small_ms:23.2f}{large_quick / small_quick:26.2f}"
            print(f"{name:34}{small_ms:9.2f}{large_ms:9.2f}{ratios}", flush=True)
        asyncio.run(_idle(small))


class Side:
    """A server over a record of one size, with the token of a controller in the project that all of it is in."""

    def __init__(self, size: int, data: Path, database_url: str) -> None:
        self.size, self._data, self._database_url = size, data, database_url
        self.port = _PORTS[size]
        self.project_id, self.org_id, self.token, self.server_pid = "", "", "", 0
        self.claim: dict[str, Any] = {}
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}/api/v1", timeout=60)

    def serve(self) -> api.process:
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(self._data)]
        command += ["--database", self._database_url] if self._database_url else []
        command += ["--rate-limit-per-s", "0"]  # one caller sends everything here
        return api.process([*command, "--listen", f"127.0.0.1:{self.port}"], self.port)

    def make_project(self) -> None:
        password = api.admin_password(self._data, self._database_url)
        self.token = api.login(password, self.port)
        self.org_id = self._post("/orgs", name="bench")["org_id"]
        self.project_id = self._post(f"/orgs/{self.org_id}/projects", name="bench")["project_id"]
        accounts = f"/projects/{self.project_id}/service-accounts"
        account_id = self._post(accounts, name="bench")["service_account_id"]
        key = self._post(f"{accounts}/{account_id}/keys")
        login = {"key_id": key["key_id"], "client_secret": key["client_secret"]}
        self.token = self._post("/auth/service-account/token", **login)["access_token"]

    def insert(self, table: tables.Table[Any], documents: Iterable[Any]) -> None:
        rows = map(table.values, documents)
        if self._database_url:
            asyncio.run(_copy(self._database_url, table, rows))
        else:
            _insert(self._data / "gpuaas.sqlite", table, rows)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.token}"}
        path = f"/projects/{self.project_id}{path}"
        answer = self._client.request(method, path, json=body, params=query, headers=headers)
        if answer.is_error:
            raise SystemExit(f"bench: {method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def _post(self, path: str, **body: str) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "X-Idempotency-Key": uuid.uuid4().hex}
        return self._client.post(path, json=body or None, headers=headers).raise_for_status().json()


@contextlib.contextmanager
def _side(data: Path, database_url: str, size: int) -> Iterator[Side]:
    side = Side(size, data, database_url)
    with side.serve():
        side.make_project()
    started_s = time.perf_counter()
    side.insert(store.INSTANCES, _instances(side))
    side.insert(store.MEMBERS, _members(side))
    side.insert(store.OPERATIONS, _operations(side))
    print(f"filled {size:,} instances in {time.perf_counter() - started_s:.0f} s", file=sys.stderr, flush=True)
    server = side.serve()
    with server:
        side.server_pid = server.pid
        yield side


def _insert(path: Path, table: tables.Table[Any], rows: Iterable[list[Any]]) -> None:
    marks = ", ".join("?" * len(table.names))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-1000000")  # kB: the indexes are filled in no order
    with connection:
        connection.executemany(f"INSERT INTO {table.name} ({', '.join(table.names)}) VALUES ({marks})", rows)
    connection.close()


async def _copy(url: str, table: tables.Table[Any], rows: Iterable[list[Any]]) -> None:
    """Write the rows and gather the statistics that autovacuum would gather later."""
    connection = await asyncpg.connect(url)
    await connection.copy_records_to_table(table.name, columns=table.names, records=rows)
    await connection.execute(f"VACUUM ANALYZE {table.name}")
    await connection.close()


def _compare(ask: "Ask", small: Side, large: Side) -> list[tuple[float, float]]:
    """In turns, so that other work of the machine affects both equally: quarter and median of each, in ms.

    On a busy machine the median falls now among the disturbed requests, now among the others; the quarter does not."""
    taken_s: dict[int, list[float]] = {SMALL: [], LARGE: []}
    for _, side in itertools.product(range(REQUESTS), (small, large)):
        started_s = time.perf_counter()
        ask(side)
        taken_s[side.size].append(time.perf_counter() - started_s)
    quartiles = [statistics.quantiles(taken_s[size], n=4) for size in (SMALL, LARGE)]
    return [(quarter * 1000, median * 1000) for quarter, median, _ in quartiles]


Ask = Callable[[Side], object]


def _claim(side: Side) -> dict[str, Any]:
    body = {"app_slug": _APP, "holder": "bench", "claim_id": uuid.uuid4().hex, "lease_s": 60}
    claim: dict[str, Any] = side.send("POST", "/operations/claim", body)
    return claim


def _claim_nothing(side: Side) -> None:
    if _claim(side)["operation"]:
        raise SystemExit("bench: there was something to claim where nothing should wait")


def _claim_waiting(side: Side) -> None:
    side.claim = _claim(side)
    if not side.claim["operation"]:
        raise SystemExit("bench: there was nothing to claim where something should wait")


def _heartbeat(side: Side) -> None:
    operation_id = side.claim["operation"]["operation_id"]
    side.send("PUT", f"/operations/{operation_id}/lease", {"epoch": side.claim["epoch"], "lease_s": 60})


def _middle(side: Side) -> str:
    return f"/app-instances/{_instance_id(side.size // 2)}"


def _page_in_the_middle(side: Side, path: str, table: str, key: str) -> None:
    page = side.send("GET", path, page_size=PAGE, page_token=tables.write_token(table, key))
    if len(page["items"]) != PAGE:
        raise SystemExit(f"bench: a page of {path} has {len(page['items'])} items; the two would not compare")


CLAIM_WAITING = "claim, something waits"
CASES: dict[str, Ask] = {
    "claim, nothing waits": _claim_nothing,
    CLAIM_WAITING: _claim_waiting,
    "heartbeat": _heartbeat,
    "instance, by id": lambda side: side.send("GET", _middle(side)),
    "instance, by name": lambda side: side.send("GET", f"/app-instances/bench-{side.size // 2}"),
    "instances, page in the middle": lambda side: _page_in_the_middle(
        side, "/app-instances", "instances", _instance_id(side.size // 2 - 1)
    ),
    "member": lambda side: side.send("GET", f"{_middle(side)}/members/{_member_id(side.size // 2 * MEMBERS_EACH)}"),
    "members of an instance": lambda side: side.send("GET", f"{_middle(side)}/members"),
    "operation": lambda side: side.send("GET", f"/operations/{_operation_id(side.size // 2 * OPERATIONS_EACH)}"),
    "operations, page in the middle": lambda side: _page_in_the_middle(
        side, "/operations", "operations", _operation_id(side.size // 2 * OPERATIONS_EACH)
    ),
    "operations of an instance": lambda side: side.send(
        "GET", "/operations", page_size=PAGE, instance_id=_instance_id(side.size // 2)
    ),
}


async def _idle(side: Side) -> None:
    """What the server holds for controllers that wait for work, and how busy their looking for it keeps it."""
    warm = [await _wait_for_work(side, f"warm-{number}") for number in range(20)]
    before_kb = resident_kb(side.server_pid)
    waiting = [await _wait_for_work(side, f"idle-{number}") for number in range(IDLE_CONTROLLERS)]
    await asyncio.sleep(5)  # all have sent a request and wait for work by now
    if len(side.send("GET", "/controllers", page_size=500)["items"]) != 500:
        raise SystemExit("bench: not all controllers were listed; the numbers would mean nothing")
    before_s = _busy_s(side.server_pid)
    await asyncio.sleep(IDLE_S)
    busy = (_busy_s(side.server_pid) - before_s) / IDLE_S
    grown_mb = (resident_kb(side.server_pid) - before_kb) / 1024
    print(f"{IDLE_CONTROLLERS} controllers waiting: {grown_mb:.1f} MB more, {busy:.0%} of a core")
    for writer in [*warm, *waiting]:
        writer.close()


def _busy_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _wait_for_work(side: Side, holder: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", side.port)
    body = f'{{"app_slug": "{_APP}-idle", "holder": "{holder}", "claim_id": "{holder}", "wait_s": 30}}'
    writer.write(
        f"POST /api/v1/projects/{side.project_id}/operations/claim HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {side.token}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
    )
    await writer.drain()
    return writer


def _instance_id(number: int) -> str:
    return f"inst_{number:026d}"


def _member_id(number: int) -> str:
    return f"mem_{number:026d}"


def _operation_id(number: int) -> str:
    return f"op_{number:026d}"


def _instances(side: Side) -> Iterator[Instance]:
    instance = Instance(
        instance_id="",
        resource_name="",
        org_id=side.org_id,
        project_id=side.project_id,
        app_slug=_APP,
        app_version="1.0.0",
        name="",
        status="running",
        status_reason="",
        topology="star",
        operating_mode="tenant_dedicated",
        control_plane_scope="project",
        runtime_backend="bench",
        placement={"hand": ["alloc_1"]},
        inputs={"hand_allocations": ["alloc_1"]},
        operator_service_account_id="",
        requested_by="user_1",
        correlation_id="cor_1",
        last_operation_id="",
        revision=5,
        created_at=_NOW,
        updated_at=_NOW,
    )
    for number in range(side.size):
        yield replace(instance, instance_id=_instance_id(number), name=f"bench-{number}")


def _members(side: Side) -> Iterator[Member]:
    member = Member(
        member_id="",
        instance_id="",
        org_id=side.org_id,
        project_id=side.project_id,
        component_key="hand",
        status="ready",
        status_reason="",
        allocation_id="alloc_1",
        node_id="node_1",
        node_name="gpu-1",
        address="10.0.0.1",
        last_operation_id="",
        correlation_id="cor_1",
        adapter_detail={"state": "idle"},
        observed_version="1.0.0",
        was_ready=True,
        revision=7,
        created_at=_NOW,
        updated_at=_NOW,
    )
    for number in range(side.size * MEMBERS_EACH):
        yield replace(member, member_id=_member_id(number), instance_id=_instance_id(number // MEMBERS_EACH))


def _operations(side: Side) -> Iterator[Operation]:
    """The instances have had theirs in turns; every tenth instance has one that is held."""
    ended = replace(_operation(side), status="succeeded", attempts=1, epoch=1, started_at=_NOW, ended_at=_NOW)
    running = replace(ended, status="running", ended_at=None)
    for number in range(side.size * OPERATIONS_EACH):
        instance = number % side.size
        operation = _numbered(ended, number, instance)
        if number >= side.size * (OPERATIONS_EACH - 1) and instance % 10 == 0:
            lease = Lease(holder="other", claim_id=f"claim-{number}", epoch=1, expires_at=_LATER)
            operation = replace(_numbered(running, number, instance), lease=lease)
        yield operation


def _waiting(side: Side) -> Iterator[Operation]:
    """As many as will be claimed, younger than all others, on instances where nothing is held."""
    accepted = _operation(side)
    for number in range(REQUESTS):
        yield _numbered(accepted, side.size * OPERATIONS_EACH + number, number % (SMALL // 10) * 10 + 1)


def _operation(side: Side) -> Operation:
    step = Step(name="draining", state="succeeded", started_at=_NOW, ended_at=_NOW)
    return Operation(
        operation_id="",
        org_id=side.org_id,
        project_id=side.project_id,
        instance_id="",
        instance_name="bench",
        app_slug=_APP,
        kind="drain",
        component_key="hand",
        status="accepted",
        targets=[],
        steps=[step],
        reason="",
        force=False,
        requested_by="user_1",
        correlation_id="",
        attempts=0,
        epoch=0,
        lease=None,
        deadline_at=_LATER,
        error=None,
        revision=4,
        created_at=_NOW,
        started_at=None,
        ended_at=None,
        progress=Progress(done=1, total=1),
    )


def _numbered(operation: Operation, number: int, instance: int) -> Operation:
    return replace(
        operation,
        operation_id=_operation_id(number),
        instance_id=_instance_id(instance),
        correlation_id=f"cor_{number}",
        targets=[Target(member_id=_member_id(instance * MEMBERS_EACH))],
    )
