"""Attack: a client without credentials sends token requests that are refused. Each wrote an audit row of 1.4 kB that is
never deleted, so one client could fill the disk: 24 GB a day."""

import http.client
import itertools
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuaas_contract import identity
from server_process import ServerProcess

REQUESTS = 10_000
CONNECTIONS = 4
ROWS_MAX = 10
"""One row for each minute of the attack; a slow machine needs more than one."""


def test_ten_thousand_refused_token_requests_write_a_handful_of_audit_rows(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--rate-limit-per-s", "0"]) as server:
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            sent = threads.map(_refused, [server.port] * CONNECTIONS)
        assert set(itertools.chain(*sent)) == {401}
        assert server.stop() == 0
    counts = _counts(tmp_path / "data" / "gpuaas.sqlite")
    assert sum(counts) == REQUESTS
    assert len(counts) <= ROWS_MAX


def _refused(port: int) -> list[int]:
    """Send the requests of one connection. Return the status of each response."""
    connection, statuses = http.client.HTTPConnection("127.0.0.1", port, timeout=60), []
    body = json.dumps({"key_id": "key_x", "client_secret": "wrong"})
    for _ in range(REQUESTS // CONNECTIONS):
        connection.request("POST", identity.SERVICE_ACCOUNT_TOKEN.path, body)
        with connection.getresponse() as response:
            statuses.append(response.status)
            response.read()
    connection.close()
    return statuses


def _counts(path: Path) -> list[int]:
    store = sqlite3.connect(path)
    rows = store.execute("SELECT document FROM audit WHERE result = 'failure'").fetchall()
    store.close()
    return [json.loads(row[0])["details"]["count"] for row in rows]
