"""The production store: PostgreSQL through asyncpg.

Groups of writers run one at a time, under an advisory lock that all platform processes use. So the order of event
cursors is the order of commits, with one process or many.

Wake-ups between processes use LISTEN and NOTIFY. The topics of a group are sent inside its transaction, so they arrive
when its changes are visible. Each process listens on a separate connection. A wake-up only means "read again", so all
listeners are woken after that connection was lost and made again.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import asyncpg
import msgspec
import structlog
from asyncpg.pool import PoolConnectionProxy

from gpuaas_platform.kit import db, groups

log = structlog.get_logger()

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
_Borrowed: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

WRITER_LOCK = 0x6770_7561  # "gpua"
_BEGIN = f"BEGIN; SELECT pg_advisory_xact_lock({WRITER_LOCK})"
_CLOSE_S_MAX = 5.0
"""How long `close` waits until the queued writers have run. The limit matters if the server does not answer."""
CHANNEL = "gpuaas_wakes"
_PAYLOAD_BYTES_MAX = 7900 - 64
"""Most bytes of topics in one message. PostgreSQL allows 8000; the sender and the JSON brackets need some of them."""
_ALIVE_EVERY_S = 10.0
_BACK_OFF_S_FIRST = 0.2
_BACK_OFF_S_MAX = 5.0
_FAILED = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)
_GONE = (
    asyncpg.PostgresConnectionError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.PostgresSystemError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    asyncpg.InterfaceError,
    OSError,
)
"""Errors that mean: the database server is unreachable, is out of resources, cannot write or shuts down."""
_REASONS: tuple[tuple[type[Exception], db.Reason], ...] = (
    (asyncpg.exceptions.DiskFullError, "disk_full"),
    (asyncpg.exceptions.PostgresSystemError, "disk_failed"),
    (asyncpg.exceptions.ReadOnlySQLTransactionError, "read_only"),
)


def shown(url: str) -> str:
    """Return the URL without user and password, to show it in messages."""
    parts = urlsplit(url)
    host = parse_qs(parts.query).get("host", [""])[0] or parts.hostname or "localhost"
    return f"{parts.scheme or 'postgresql'}://{host}{parts.path}"


@contextlib.asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """Open a connection that does not belong to the pool."""
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


class PostgresDatabase(groups.GroupCommit):
    is_remote = True

    def __init__(self, pool: "asyncpg.Pool[asyncpg.Record]", wakes: "Wakes", notify: Callable[[str], None]) -> None:
        super().__init__(notify)
        self._pool, self._wakes = pool, wakes
        self.reader: db.Reader = PostgresReader(pool)

    @classmethod
    async def connect(
        cls, url: str, notify: Callable[[str], None], notify_all: Callable[[], None]
    ) -> "PostgresDatabase":
        pool = await asyncpg.create_pool(url, min_size=2, max_size=8, reset=_keep_session)
        wakes = Wakes(url, notify, notify_all)
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
            async with self._pool.acquire() as connection:
                try:
                    await self._run_in_transaction(connection, jobs)
                except BaseException:
                    with contextlib.suppress(*_FAILED):
                        await connection.execute("ROLLBACK")
                    raise
        except _FAILED as error:
            raise _unavailable(error) from error

    async def _run_in_transaction(self, connection: _Borrowed, jobs: Sequence[db.Job]) -> None:
        """Run the group. A trip to the server costs more than most statements, so statements without parameters share
        one, and a writer that is alone needs no savepoint."""
        await connection.execute(_BEGIN)
        if len(jobs) > 1:
            await _run_together(connection, jobs)
        else:
            await _run_use_case(connection, jobs[0])
            if _is_undone(jobs[0]):
                await connection.execute("ROLLBACK")
                return
        done = await connection.execute(self._wakes.statements(db.topics_of(jobs)) + "COMMIT")
        if done != "COMMIT":  # PostgreSQL rolls back without an error if a use case continued after a failed statement
            raise RuntimeError(f"the transaction ended with {done}")


class PostgresReader:
    def __init__(self, source: "asyncpg.Pool[asyncpg.Record] | asyncpg.Connection[asyncpg.Record] | _Borrowed") -> None:
        self._source = source

    async def one(self, sql: str, *values: object) -> db.Row | None:
        try:
            return await self._source.fetchrow(sql, *values)
        except _GONE as error:
            raise _unavailable(error) from error

    async def all(self, sql: str, *values: object) -> Sequence[db.Row]:
        try:
            return await self._source.fetch(sql, *values)
        except _GONE as error:
            raise _unavailable(error) from error


class PostgresTx(PostgresReader):
    def __init__(self, connection: "Connection | _Borrowed", topics: list[str]) -> None:
        super().__init__(connection)
        self._topics = topics

    async def run(self, sql: str, *values: object) -> int:
        try:
            status = await self._source.execute(sql, *values)
        except asyncpg.UniqueViolationError as error:
            raise db.Duplicate(str(error)) from error
        except _GONE as error:
            raise _unavailable(error) from error
        return int(status.rsplit(" ", 1)[-1]) if status[-1].isdigit() else 0

    def wake(self, topic: str) -> None:
        self._topics.append(topic)


def _unavailable(error: Exception) -> db.Unavailable:
    return db.Unavailable(str(error), next((reason for kind, reason in _REASONS if isinstance(error, kind)), ""))


async def _keep_session(_: Connection) -> None:
    """Leave a connection as it is when it returns to the pool: the platform changes no setting of its session.

    asyncpg would send a statement for this after each read. It still ends a transaction that was left open."""


async def _run_together(connection: _Borrowed, jobs: Sequence[db.Job]) -> None:
    await connection.execute("SAVEPOINT job")
    for job in jobs:
        await _run_use_case(connection, job)
        again = "ROLLBACK TO SAVEPOINT job" if _is_undone(job) else "RELEASE SAVEPOINT job; SAVEPOINT job"
        await connection.execute(again)


def _is_undone(job: db.Job) -> bool:
    return job.error is not None or not job.keep


async def _run_use_case(connection: _Borrowed, job: db.Job) -> None:
    try:
        job.result = await job.use_case(PostgresTx(connection, job.topics))
    except Exception as error:  # noqa: BLE001 - a writer gets its own error; the group continues
        job.error = error


class _Message(msgspec.Struct, array_like=True):
    sender: str
    topics: list[str]
    """The topics to wake; an empty list wakes every listener."""


_MESSAGE = msgspec.json.Decoder(_Message)


class Wakes:
    def __init__(self, url: str, notify: Callable[[str], None], notify_all: Callable[[], None]) -> None:
        self._url, self._notify, self._notify_all = url, notify, notify_all
        self._sender = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start to listen. Called before the store is read, so that no wake-up is missed."""
        connection, lost = await self._connect()
        self._task = asyncio.create_task(self._listen(connection, lost), name="postgres-wakes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def statements(self, topics: Sequence[str]) -> str:
        """Return the SQL that sends topics, to run in the transaction of the change: they arrive when it commits, and
        never if it fails."""
        return "".join(f"NOTIFY {CHANNEL}, {_literal(payload)}; " for payload in payloads(self._sender, topics))

    async def _listen(self, connection: Connection, lost: asyncio.Event) -> None:
        while True:
            try:
                await _until_lost(connection, lost)
            finally:
                connection.terminate()
            log.warning("wakes.connection_lost")
            connection, lost = await self._reconnect()
            self._notify_all()

    async def _reconnect(self) -> tuple[Connection, asyncio.Event]:
        pause_s = _BACK_OFF_S_FIRST
        while True:
            try:
                return await self._connect()
            except (*_FAILED, TimeoutError) as error:
                log.warning("wakes.connect_failed", error=str(error), retry_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _BACK_OFF_S_MAX)

    async def _connect(self) -> tuple[Connection, asyncio.Event]:
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._url, timeout=_ALIVE_EVERY_S)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._receive)
        except BaseException:
            connection.terminate()
            raise
        return connection, lost

    def _receive(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        message = _MESSAGE.decode(str(payload))
        if message.sender == self._sender:
            return  # sent by this process, which woke its own listeners directly after the commit
        if not message.topics:
            self._notify_all()
        for topic in message.topics:
            self._notify(topic)


def payloads(sender: str, topics: Sequence[str]) -> Iterator[str]:
    """Put the topics into as few messages as possible, each below PostgreSQL's size limit."""
    chunk, room = list[str](), _PAYLOAD_BYTES_MAX
    for topic in dict.fromkeys(topics):
        size = len(msgspec.json.encode(topic)) + 1
        if size > _PAYLOAD_BYTES_MAX:
            yield _payload(sender, [])
            continue
        if size > room:
            yield _payload(sender, chunk)
            chunk, room = [], _PAYLOAD_BYTES_MAX
        chunk.append(topic)
        room -= size
    if chunk:
        yield _payload(sender, chunk)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


def _payload(sender: str, topics: list[str]) -> str:
    return msgspec.json.encode(_Message(sender, topics)).decode()


async def _until_lost(connection: Connection, lost: asyncio.Event) -> None:
    """Wait until the connection is lost. It can fail without an error, so it is tested at intervals."""
    while not lost.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ALIVE_EVERY_S):
                await lost.wait()
            return
        try:
            await connection.execute("SELECT 1", timeout=_ALIVE_EVERY_S)
        except (*_FAILED, TimeoutError):
            return
