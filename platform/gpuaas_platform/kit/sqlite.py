"""The embedded store: SQLite in WAL mode with synchronous=FULL.

Reads and the statements of writers take microseconds, so they run directly on the event loop, on one connection for
reads and one for writes. A thread does what can take longer: the commit, which waits for the disk, and the wait for
another process that writes.
"""

import contextlib
import functools
import operator
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

from gpuaas_platform.kit import db, groups

_BUSY_MS_MAX = 30_000
_first_row: Callable[[sqlite3.Cursor], db.Row | None] = sqlite3.Cursor.fetchone
_rowcount: Callable[[sqlite3.Cursor], int] = operator.attrgetter("rowcount")
_DUPLICATE = (sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY)
_REASONS: dict[int, db.Reason] = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_IOERR: "disk_failed",
    sqlite3.SQLITE_READONLY: "read_only",
}


class SqliteDatabase(groups.GroupCommit):
    is_remote = False

    def __init__(self, path: Path, notify: Callable[[str], None]) -> None:
        self._read_connection = connect(path)
        self._write_connection = connect(path)
        self.reader: db.Reader = SqliteReader(self._read_connection)
        self._version: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-commit")
        super().__init__(notify)

    def version(self) -> int | None:
        """Return SQLite's `data_version`, which changes with each commit of other connections. This one never commits.

        It is read once per turn of the event loop: later requests are handled after the cached value was dropped.
        """
        if self._version is None:
            self._version = self._read_connection.execute("PRAGMA data_version").fetchone()[0]
            self._loop.call_soon(setattr, self, "_version", None)
        return self._version

    async def close(self) -> None:
        await self._finish_writing()
        self._thread.shutdown()
        self._write_connection.close()
        self._read_connection.close()

    async def _run_group(self, jobs: Sequence[db.Job]) -> None:
        connection = self._write_connection
        try:
            await self._begin()
            for job in jobs:
                _run_job(connection, job)
            await self._execute_in_thread("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise _unavailable(error) from error

    async def _begin(self) -> None:
        connection = self._write_connection
        connection.execute("PRAGMA busy_timeout=0")
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
            connection.execute(f"PRAGMA busy_timeout={_BUSY_MS_MAX}")
            await self._execute_in_thread("BEGIN IMMEDIATE")

    async def _execute_in_thread(self, statement: str) -> None:
        await self._loop.run_in_executor(self._thread, self._write_connection.execute, statement)


class SqliteReader:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    async def one(self, sql: str, *values: object) -> db.Row | None:
        return self._execute(sql, values, _first_row)

    async def all(self, sql: str, *values: object) -> Sequence[db.Row]:
        return self._execute(sql, values, sqlite3.Cursor.fetchall)

    def _execute(self, sql: str, values: tuple[object, ...], take: Callable[[sqlite3.Cursor], db.Result]) -> db.Result:
        """Raise `Unavailable` for a full or broken disk. A wrong SQL statement is a bug; its error is not changed."""
        try:
            return take(self._connection.execute(_dialect(sql), values))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
                raise
            raise _unavailable(error) from error


class SqliteTx(SqliteReader):
    def __init__(self, connection: sqlite3.Connection, topics: list[str]) -> None:
        super().__init__(connection)
        self._topics = topics

    async def run(self, sql: str, *values: object) -> int:
        try:
            return self._execute(sql, values, _rowcount)
        except sqlite3.IntegrityError as error:
            if error.sqlite_errorcode not in _DUPLICATE:
                raise
            raise db.Duplicate(str(error)) from error

    def wake(self, topic: str) -> None:
        self._topics.append(topic)


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS_MAX}")
    _use_wal(connection)
    # Foreign keys are not used: parents are not deleted before their children but get an end state, each write checks
    # its parent in the same transaction, and SQLite can add a constraint only by copying the table.
    connection.execute("PRAGMA synchronous=FULL")
    # By default the journal of a savepoint is a temporary file, which a process without free descriptors cannot open.
    connection.execute("PRAGMA temp_store=MEMORY")
    return connection


@contextlib.contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database to read it, also beside a running server, on a read-only disk, or as another user.

    A database with a WAL needs an index file beside it. If that is missing and cannot be created, no server is running:
    then the main file is the whole database, or, with a WAL, both files are read from a copy."""
    with contextlib.ExitStack() as stack:
        try:
            connection = stack.enter_context(_opened(path, "mode=ro"))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
            wal = Path(f"{path}-wal")
            if wal.exists() and wal.stat().st_size:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                for file in (path, wal):
                    shutil.copyfile(file, folder / file.name)
                connection = stack.enter_context(_opened(folder / path.name, "mode=rw"))
            else:
                connection = stack.enter_context(_opened(path, "immutable=1"))
        yield connection


@contextlib.contextmanager
def _opened(path: Path, mode: str) -> Iterator[sqlite3.Connection]:
    uri = f"{path.absolute().as_uri()}?{mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        yield connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL mode. For a new file this fails if another process does it at the same time: wait, then retry."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")


def _unavailable(error: sqlite3.Error) -> db.Unavailable:
    return db.Unavailable(str(error), _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, ""))


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _run_job(connection: sqlite3.Connection, job: db.Job) -> None:
    connection.execute("SAVEPOINT job")
    try:
        job.result = _run_to_end(job.use_case(SqliteTx(connection, job.topics)))
    except Exception as error:  # noqa: BLE001 - a writer gets its own error; the group continues
        job.error = error
    if not connection.in_transaction:  # a full disk rolls back the transaction and with it the whole group
        raise job.error if isinstance(job.error, db.Unavailable) else db.Unavailable(str(job.error))
    if job.error is not None or not job.keep:
        connection.execute("ROLLBACK TO job")
    connection.execute("RELEASE job")


def _run_to_end(use_case: Awaitable[object]) -> object:
    """Run the use case without suspending: it awaits only its transaction, which never suspends on SQLite."""
    coroutine = cast("Coroutine[object, None, object]", use_case)
    try:
        coroutine.send(None)
    except StopIteration as finished:
        return finished.value
    coroutine.close()
    raise RuntimeError("a write use case awaited something other than its transaction")


@functools.lru_cache(maxsize=1024)
def _dialect(sql: str) -> str:
    return re.sub(r"\$(\d+)", r"?\1", sql)
