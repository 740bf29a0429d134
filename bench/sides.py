"""One of the two servers that a benchmark compares, with a project, a controller's token and tables to fill."""

import asyncio
import contextlib
import shutil
import sqlite3
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench import api, records
from bench.platform_parts import Rows, postgres_server

DatabaseUrl = Callable[[str], str]
"""Makes a database with this name and returns its URL; an empty URL means SQLite."""


class Side:
    """One server with a record of `size` instances."""

    def __init__(self, size: int, data: Path, database_url: str, port: int) -> None:
        self.size, self.port = size, port
        self._data, self.database_url = data, database_url
        self.project_id, self.org_id, self.token, self.admin_token, self.server_pid = "", "", "", "", 0
        self.claim: dict[str, Any] = {}
        self._account, self._apps = "", list[str]()
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}/api/v1", timeout=60)

    def serve(self) -> api.process:
        command = [sys.executable, "-m", "gpuaas_platform.main", "server", "--data", str(self._data)]
        command += ["--database", self.database_url] if self.database_url else []
        command += ["--rate-limit-per-s", "0"]  # one caller sends all requests of the benchmark
        return api.process([*command, "--listen", f"127.0.0.1:{self.port}"], self.port)

    def make_project(self) -> None:
        password = api.admin_password(self._data, self.database_url)
        self.token = self.admin_token = api.login(password, self.port)
        self.org_id = self.post("/orgs", name="bench", first_admin="admin")["org_id"]
        self.project_id = self.post(f"/orgs/{self.org_id}/projects", name="bench")["project_id"]
        accounts = f"/projects/{self.project_id}/service-accounts"
        self._account = f"{accounts}/{self.post(accounts, name='bench')['service_account_id']}"
        key = self.post(f"{self._account}/keys")
        login = {"key_id": key["key_id"], "client_secret": key["client_secret"]}
        self.token = self.post("/auth/service-account/token", **login)["access_token"]

    def new_key(self) -> dict[str, str]:
        """Return another key of the controller's service account, as it is in a credentials file."""
        key = self.post(f"{self._account}/keys")
        return {"key_id": key["key_id"], "client_secret": key["client_secret"]}

    def register_app(self, slug: str, manifest: dict[str, Any] | None = None) -> None:
        """Register an app and let the project use it; controllers may then wait for its operations."""
        known = manifest or records.manifest(slug)
        self.administer("POST", "/admin/app-versions", known)
        self.administer("POST", f"/admin/apps/{slug}/versions/{known['version']}/publish", {"channels": ["stable"]})
        self.administer("PUT", f"/projects/{self.project_id}/entitlements/{slug}", {"enabled": True})
        self._apps.append(slug)
        self.administer("PUT", f"{self._account}/apps", {"apps": self._apps})

    def insert(self, tables: Sequence[Rows], documents: Callable[[], Iterable[Any]]) -> None:
        """Write the documents directly into their tables, because the benchmarks measure only how they are read."""
        for table in tables:
            rows = (row for document in documents() for row in table.of(document))
            if self.database_url:
                asyncio.run(_copy(self.database_url, table, rows))
            else:
                _insert(self._data / "gpuaas.sqlite", table, rows)

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Call the project's API as its controller."""
        headers = {"Authorization": f"Bearer {self.token}"}
        path = f"/projects/{self.project_id}{path}"
        return _content(self._client.request(method, path, json=body, params=query, headers=headers))

    def post(self, path: str, **body: Any) -> Any:
        """Call the API as the administrator."""
        return self.administer("POST", path, body or None)

    def administer(self, method: str, path: str, body: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.admin_token}", "X-Idempotency-Key": uuid.uuid4().hex}
        return _content(self._client.request(method, path, json=body, headers=headers))


@contextlib.contextmanager
def stores(*, as_in_production: bool = False) -> Iterator[dict[str, tuple[Path, DatabaseUrl]]]:
    """Yield, for each kind of store of the platform, a folder and a function that makes databases.

    `as_in_production`: PostgreSQL writes to the disk before a commit ends, and removes old rows in the background."""
    parent = Path(tempfile.mkdtemp(prefix="gpuaas-bench-"))
    parent.chmod(0o755)

    def new_database(name: str) -> str:
        postgres_server.create_database(parent / "pg", name)
        return url.format(database=name)

    try:
        with postgres_server.running(parent / "pg", as_in_production=as_in_production) as url:
            yield {"SQLite": (parent / "sqlite", lambda _: ""), "PostgreSQL": (parent / "data", new_database)}
    finally:
        shutil.rmtree(parent)


def _content(answer: httpx.Response) -> Any:
    if answer.is_error:
        request = answer.request
        raise SystemExit(f"bench: {request.method} {request.url.path}: {answer.status_code} {answer.text}")
    return answer.json()


def _insert(path: Path, table: Rows, rows: Iterable[Sequence[Any]]) -> None:
    marks = ", ".join("?" * len(table.columns))
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("PRAGMA cache_size=-1000000")  # in kB; large, as rows arrive in random order
    with connection:
        connection.executemany(f"INSERT INTO {table.table} ({', '.join(table.columns)}) VALUES ({marks})", rows)
    connection.close()


async def _copy(url: str, table: Rows, rows: Iterable[Sequence[Any]]) -> None:
    """Copy the rows, and collect the statistics that autovacuum would collect later."""
    connection = await asyncpg.connect(url)
    await connection.copy_records_to_table(table.table, columns=list(table.columns), records=rows)
    await connection.execute(f"VACUUM ANALYZE {table.table}")
    await connection.close()
