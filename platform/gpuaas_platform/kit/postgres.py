"""The production store: PostgreSQL through asyncpg.

Groups run one at a time on one connection, under an advisory lock that other platform processes take too: so the order
of event cursors is the order of commits, on one process or on many.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import asyncpg

from gpuaas_platform.kit import db

Result = TypeVar("Result")
WRITER_LOCK = 0x6770_7561  # "gpua"
_GROUP_MAX = 256


class PostgresDatabase:
    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", notify: Callable[[str], None]) -> None:
        self._pool = pool
        self._notify = notify
        self._jobs: asyncio.Queue[db.Job] = asyncio.Queue()
        self.reader: db.Reader = PostgresReader(pool)
        self._writer = asyncio.create_task(self._write_groups(), name="postgres-writer")

    @classmethod
    async def connect(cls, url: str, notify: Callable[[str], None]) -> "PostgresDatabase":
        pool = await asyncpg.create_pool(url, min_size=2, max_size=8)
        return cls(pool, notify)

    async def write(self, use_case: db.UseCase[Result], *, keep: bool = True) -> Result:
        job = db.Job(use_case, keep, asyncio.get_running_loop().create_future())
        self._jobs.put_nowait(job)
        return cast(Result, await job.answer)

    async def close(self) -> None:
        self._writer.cancel()
        await asyncio.gather(self._writer, return_exceptions=True)
        await self._pool.close()

    async def _write_groups(self) -> None:
        while True:
            jobs = [await self._jobs.get()]
            while not self._jobs.empty() and len(jobs) < _GROUP_MAX:
                jobs.append(self._jobs.get_nowait())
            error: BaseException | None = None
            try:
                await self._run_group(jobs)
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as failure:
                error = failure
            db.settle(jobs, self._notify, error)

    async def _run_group(self, jobs: Sequence[db.Job]) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", WRITER_LOCK)
            for job in jobs:
                await _run_job(connection, job)


class PostgresReader:
    def __init__(self, source: Any) -> None:
        self._source = source

    async def one(self, sql: str, *values: Any) -> db.Row | None:
        return cast("db.Row | None", await self._source.fetchrow(sql, *values))

    async def all(self, sql: str, *values: Any) -> Sequence[db.Row]:
        return cast("Sequence[db.Row]", await self._source.fetch(sql, *values))


class PostgresTx(PostgresReader):
    def __init__(self, connection: Any, topics: list[str]) -> None:
        super().__init__(connection)
        self._topics = topics

    async def run(self, sql: str, *values: Any) -> int:
        status = str(await self._source.execute(sql, *values))
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
    except Exception as error:  # noqa: BLE001 - whatever one writer raises is its own answer; the group goes on
        job.error = error
