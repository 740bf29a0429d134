"""The production store: PostgreSQL through asyncpg.

Groups run one at a time on one connection, under an advisory lock that other platform processes take too: so the order
of event cursors is the order of commits, on one process or on many.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import asyncpg

from gpuaas_platform.kit import db, groups, postgres_wakes

WRITER_LOCK = 0x6770_7561  # "gpua"
_CLOSE_S_MAX = 5.0
"""Writers that wait when the store closes are still run, unless the server does not answer."""
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.InterfaceError,
    OSError,
)
"""The server went away, is full or is being shut down."""


def shown(url: str) -> str:
    """Return the address without user and password."""
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [""])[0] or parts.hostname or "localhost"
    return f"{parts.scheme or 'postgresql'}://{host}{parts.path}"


class PostgresDatabase(groups.GroupCommit):
    def __init__(
        self, pool: "asyncpg.Pool[asyncpg.Record]", wakes: postgres_wakes.Wakes, notify: Callable[[str], None]
    ) -> None:
        super().__init__(notify)
        self._pool = pool
        self._wakes = wakes
        self.reader: db.Reader = PostgresReader(pool)

    @classmethod
    async def connect(
        cls, url: str, notify: Callable[[str], None], notify_all: Callable[[], None]
    ) -> "PostgresDatabase":
        pool = await asyncpg.create_pool(url, min_size=2, max_size=8)
        wakes = postgres_wakes.Wakes(url, notify, notify_all)
        await wakes.start()
        return cls(pool, wakes, notify)

    def version(self) -> int | None:
        return None

    async def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S_MAX):
                await self._finish_writing()
        await self._wakes.close()
        await self._pool.close()

    async def _run_group(self, jobs: Sequence[db.Job]) -> None:
        try:
            async with self._pool.acquire() as connection, connection.transaction():
                await connection.execute("SELECT pg_advisory_xact_lock($1)", WRITER_LOCK)
                for job in jobs:
                    await _run_job(connection, job)
                await self._wakes.send(connection, db.topics_of(jobs))
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise db.Unavailable(str(error)) from error


class PostgresReader:
    def __init__(self, source: Any) -> None:
        self._source = source

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        try:
            return cast("db.Row | None", await self._source.fetchrow(sql, *values))
        except _GONE as error:
            raise db.Unavailable(str(error)) from error

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        try:
            return cast("Sequence[db.Row]", await self._source.fetch(sql, *values))
        except _GONE as error:
            raise db.Unavailable(str(error)) from error


class PostgresTx(PostgresReader):
    def __init__(self, connection: Any, topics: list[str]) -> None:
        super().__init__(connection)
        self._topics = topics

    async def run(self, sql: str, *values: Any) -> int:
        try:
            status = str(await self._source.execute(sql, *values))
        except asyncpg.UniqueViolationError as error:
            raise db.Duplicate(str(error)) from error
        return int(status.rsplit(" ", 1)[-1]) if status[-1].isdigit() else 0

    def wake(self, topic: str) -> None:
        self._topics.append(topic)


class _NotKept(Exception):
    """Rolls a dry run's savepoint back."""


async def _run_job(connection: Any, job: db.Job) -> None:
    try:
        async with connection.transaction():
            job.result = await job.use_case(PostgresTx(connection, job.topics))
            if not job.keep:
                raise _NotKept
    except _NotKept:
        return
    except Exception as error:  # noqa: BLE001 - a writer gets its own error; the group continues
        job.error = error
