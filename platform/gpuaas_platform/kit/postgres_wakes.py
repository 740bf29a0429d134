"""Wake-ups between the processes of one platform, by LISTEN and NOTIFY.

`postgres` sends the topics of a group inside its transaction, so they arrive exactly when the group is visible. Each
process listens on a connection of its own. A wake-up only means "look again": after a time without a connection, all
listeners are woken.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import asyncpg
import msgspec
import structlog

log = structlog.get_logger()

CHANNEL = "gpuaas_wakes"
_PAYLOAD_BYTES_MAX = 7900
_ALIVE_EVERY_S = 10.0
_BACK_OFF_S_FIRST = 0.2
_BACK_OFF_S_MAX = 5.0


class _Message(msgspec.Struct, array_like=True):
    sender: str
    topics: list[str]
    """Empty: wake every listener."""


_MESSAGE = msgspec.json.Decoder(_Message)


class Wakes:
    def __init__(self, url: str, notify: Callable[[str], None], notify_all: Callable[[], None]) -> None:
        self._url, self._notify, self._notify_all = url, notify, notify_all
        self._sender = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen before anything is read, so that no later wake-up is missed."""
        connection, lost = await self._connect()
        self._task = asyncio.create_task(self._listen(connection, lost), name="postgres-wakes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def send(self, connection: Any, topics: Sequence[str]) -> None:
        """Send in the transaction of the change: the topics arrive at its commit, and never if it fails."""
        for payload in payloads(self._sender, topics):
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    async def _listen(self, connection: "asyncpg.Connection[asyncpg.Record]", lost: asyncio.Event) -> None:
        while True:
            try:
                await _until_lost(connection, lost)
            finally:
                connection.terminate()
            log.warning("wakes.connection_lost")
            connection, lost = await self._reconnect()
            self._notify_all()

    async def _reconnect(self) -> "tuple[asyncpg.Connection[asyncpg.Record], asyncio.Event]":
        pause_s = _BACK_OFF_S_FIRST
        while True:
            try:
                return await self._connect()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                log.warning("wakes.connect_failed", error=str(error), retry_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _BACK_OFF_S_MAX)

    async def _connect(self) -> "tuple[asyncpg.Connection[asyncpg.Record], asyncio.Event]":
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
            return  # this process was woken directly, after the commit
        if not message.topics:
            self._notify_all()
        for topic in message.topics:
            self._notify(topic)


def payloads(sender: str, topics: Sequence[str]) -> Iterator[str]:
    """Return as few messages as hold all topics; each is shorter than the limit of PostgreSQL."""
    chunk: list[str] = []
    room = _PAYLOAD_BYTES_MAX - 64
    for topic in dict.fromkeys(topics):
        size = len(msgspec.json.encode(topic)) + 1
        if size > _PAYLOAD_BYTES_MAX - 64:
            yield _payload(sender, [])
            continue
        if size > room:
            yield _payload(sender, chunk)
            chunk, room = [], _PAYLOAD_BYTES_MAX - 64
        chunk.append(topic)
        room -= size
    if chunk:
        yield _payload(sender, chunk)


def _payload(sender: str, topics: list[str]) -> str:
    return msgspec.json.encode(_Message(sender, topics)).decode()


async def _until_lost(connection: "asyncpg.Connection[asyncpg.Record]", lost: asyncio.Event) -> None:
    """Wait until the connection is lost. It can be dead without an error, so it is checked from time to time."""
    while not lost.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ALIVE_EVERY_S):
                await lost.wait()
            return
        try:
            await connection.execute("SELECT 1", timeout=_ALIVE_EVERY_S)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return
