"""Compare the same reads on a thousand and on a million rows."""

import datetime
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import msgspec

from bench.api import admin_password, login, process
from bench.platform_parts import page_token

SMALL, LARGE = 1_000, 1_000_000
REQUESTS = 200
WARM = 50
PORT = 7173
_NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def run() -> None:
    measured = {rows: _measure(rows) for rows in (SMALL, LARGE)}
    print(f"{'':32}{SMALL:>12,} rows{LARGE:>12,} rows{'ratio':>8}   (median of {REQUESTS} requests, ms)")
    for title, small_ms in measured[SMALL].items():
        large_ms = measured[LARGE][title]
        print(f"{title:32}{small_ms:17.2f}{large_ms:17.2f}{large_ms / small_ms:8.2f}")


def _measure(rows: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as folder:
        data = Path(folder)
        password = admin_password(data)
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", folder, "--rate-limit-per-s", "0"]
        with process([*command, "--listen", f"127.0.0.1:{PORT}"], PORT):
            pass
        _fill(data / "gpuaas.sqlite", rows)
        with process([*command, "--listen", f"127.0.0.1:{PORT}"], PORT):
            token = login(password, PORT)
            with httpx.Client(
                base_url=f"http://127.0.0.1:{PORT}/api/v1", headers={"Authorization": f"Bearer {token}"}
            ) as client:
                middle = page_token("orgs", f"org_{rows // 2:026d}")
                return {
                    "list, first page of 100": _median_ms(client, "/orgs", page_size=100),
                    "list, page in the middle": _median_ms(client, "/orgs", page_size=100, page_token=middle),
                    "audit, newest request by id": _median_ms(client, "/admin/audit", correlation_id=f"cor_{rows - 1}"),
                    "audit, one actor in the middle": _median_ms(
                        client, "/admin/audit", actor_id="user_7", after=rows // 2, limit=5
                    ),
                }


def _median_ms(client: httpx.Client, path: str, **query: str | int) -> float:
    """Return the median time of a request. Some requests before the measurement fill the cache of the file."""
    taken = []
    for _ in range(WARM + REQUESTS):
        started = time.perf_counter()
        answer = client.get(path, params=query)
        taken.append(time.perf_counter() - started)
        if answer.status_code != 200 or not answer.json()["items"]:
            raise SystemExit(f"bench: GET {path} {query}: status {answer.status_code}: {answer.text[:300]}")
    return statistics.median(taken[WARM:]) * 1000


def _fill(path: Path, rows: int) -> None:
    """Write the rows directly into the tables, because the benchmark measures only how they are read."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    with connection:
        connection.executemany("INSERT INTO orgs (org_id, name, document) VALUES (?, ?, ?)", _orgs(rows))
        connection.executemany(
            """INSERT INTO audit (chain, position, previous_hash, hash, project_id, actor_id, action, target, result,
               correlation_id, occurred_at, document)
               VALUES ('bench', ?, '', '', '', ?, 'bench', 'bench', 'success', ?, ?, ?)""",
            _audit_rows(rows),
        )
    connection.close()


def _orgs(rows: int) -> Iterator[tuple[str, str, str]]:
    for number in range(rows):
        org_id = f"org_{number:026d}"
        document = {"org_id": org_id, "name": f"org-{number}", "created_at": _NOW}
        yield org_id, f"org-{number}", msgspec.json.encode(document).decode()


def _audit_rows(rows: int) -> Iterator[tuple[int, str, str, int, str]]:
    entry = {
        "occurred_at": _NOW, "actor_type": "user", "action": "bench", "target": "bench", "result": "success",
        "org_id": "", "project_id": "", "details": {},
    }  # fmt: skip
    for number in range(rows):
        actor, correlation = f"user_{number % 100}", f"cor_{number}"
        document = {**entry, "audit_id": f"aud_{number}", "actor_id": actor, "correlation_id": correlation}
        moment = int(_NOW.timestamp() * 1_000_000) + number
        yield number + 1, actor, correlation, moment, msgspec.json.encode(document).decode()
