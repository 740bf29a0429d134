"""The embedded store: SQLite in WAL mode with synchronous=FULL.

One thread owns the writing connection and runs the groups; reads are done inline on the event loop with a connection of
their own, since they take microseconds.
"""

import asyncio
import contextlib
import functools
import queue
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from gpuaas_platform.kit import db

Result = TypeVar("Result")
_GROUP_MAX = 256


class SqliteDatabase:
    def __init__(self, path: Path, notify: Callable[[str], None]) -> None:
        self._path = path
        self._notify = notify
        self.on_group: db.OnGroup = db.nobody_counts
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[db.Job | None] = queue.SimpleQueue()
        self._read_connection = _connect(path)
        self.reader: db.Reader = SqliteReader(self._read_connection)
        self._thread = threading.Thread(target=self._write_groups, name="sqlite-writer", daemon=True)
        self._thread.start()

    async def write(self, use_case: db.UseCase[Result], *, keep: bool = True) -> Result:
        job = db.Job(use_case, keep, self._loop.create_future())
        self._jobs.put(job)
        return cast(Result, await job.answer)

    async def close(self) -> None:
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._read_connection.close()

    def _write_groups(self) -> None:
        connection = _connect(self._path)
        open_for_work = True
        while open_for_work:
            jobs, open_for_work = self._next_group()
            if jobs:
                started_s = time.perf_counter()
                error = _run_group(connection, jobs)
                self.on_group(len(jobs), time.perf_counter() - started_s)
                self._loop.call_soon_threadsafe(db.settle, jobs, self._notify, error)
        connection.close()

    def _next_group(self) -> tuple[list[db.Job], bool]:
        jobs: list[db.Job] = []
        found = self._jobs.get()
        while found is not None:
            jobs.append(found)
            if len(jobs) == _GROUP_MAX or self._jobs.empty():
                return jobs, True
            found = self._jobs.get()
        return jobs, False


class SqliteReader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        return cast("db.Row | None", self._connection.execute(_dialect(sql), values).fetchone())

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        return cast("Sequence[db.Row]", self._connection.execute(_dialect(sql), values).fetchall())


class SqliteTx(SqliteReader):
    def __init__(self, connection: sqlite3.Connection, topics: list[str]) -> None:
        super().__init__(connection)
        self._topics = topics

    async def run(self, sql: str, *values: Any) -> int:
        return self._connection.execute(_dialect(sql), values).rowcount

    def wake(self, topic: str) -> None:
        self._topics.append(topic)


def migrate(path: Path, statements: Callable[[sqlite3.Connection], None]) -> None:
    connection = _connect(path)
    try:
        statements(connection)
    finally:
        connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.row_factory = sqlite3.Row
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")
    return connection


def _run_group(connection: sqlite3.Connection, jobs: Sequence[db.Job]) -> BaseException | None:
    try:
        connection.execute("BEGIN IMMEDIATE")
        for job in jobs:
            _run_job(connection, job)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        return db.Unavailable(str(error))
    return None


def _run_job(connection: sqlite3.Connection, job: db.Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        use_case = cast("Coroutine[Any, Any, Any]", job.use_case(SqliteTx(connection, job.topics)))
        job.result = _run_to_end(use_case)
    except Exception as error:  # noqa: BLE001 - whatever one writer raises is its own answer; the group goes on
        job.error = error
    if job.error is not None or not job.keep:
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _run_to_end(use_case: Coroutine[Any, Any, Result]) -> Result:
    """A use case awaits only its transaction, and here that never suspends: one step runs it whole."""
    try:
        use_case.send(None)
    except StopIteration as finished:
        return cast(Result, finished.value)
    use_case.close()
    raise RuntimeError("a write use case awaited something other than its transaction")


@functools.lru_cache(maxsize=1024)
def _dialect(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", sql)
