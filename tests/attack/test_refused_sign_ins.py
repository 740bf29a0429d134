"""Attack: a client without credentials sends token requests that are refused. Each wrote an audit row of 1.4 kB that is
never deleted, so one client could fill the disk: 24 GB a day."""

import asyncio
import json
import sqlite3
from pathlib import Path

import httpx
from gpuaas_contract import identity
from server_process import ServerProcess

REQUESTS = 10_000
TASKS = 20
ROWS_MAX = 10
"""One row for each minute of the attack; a slow machine needs more than one."""


async def test_ten_thousand_refused_token_requests_write_a_handful_of_audit_rows(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path / "data", options=["--rate-limit-per-s", "0"])
    with server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            await asyncio.gather(*(_refused(client, REQUESTS // TASKS) for _ in range(TASKS)))
        assert server.stop() == 0
    counts = _counts(tmp_path / "data" / "gpuaas.sqlite")
    assert sum(counts) == REQUESTS
    assert len(counts) <= ROWS_MAX


async def _refused(client: httpx.AsyncClient, times: int) -> None:
    body = {"key_id": "key_x", "client_secret": "wrong"}
    for _ in range(times):
        answer = await client.post(identity.SERVICE_ACCOUNT_TOKEN.path, json=body)
        assert answer.status_code == 401


def _counts(path: Path) -> list[int]:
    store = sqlite3.connect(path)
    rows = store.execute("SELECT document FROM audit WHERE result = 'failure'").fetchall()
    store.close()
    return [json.loads(row[0])["details"]["count"] for row in rows]
