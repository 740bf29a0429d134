"""Wake-ups between the processes of one platform, by LISTEN and NOTIFY.

`postgres` says the topics of a group inside its transaction, so they are told exactly when the group is visible. Each
process listens on one connection of its own. A wake-up only ever means "look again": whatever was said while nobody
could listen is made good by waking everybody.
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


class _Said(msgspec.Struct, array_like=True):
    speaker: str
    topics: list[str]
    """Empty: everybody looks again."""


_SAID = msgspec.json.Decoder(_Said)


class Wakes:
    def __init__(self, url: str, notify: Callable[[str], None], notify_all: Callable[[], None]) -> None:
        self._url, self._notify, self._notify_all = url, notify, notify_all
        self._speaker = secrets.token_hex(8)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Listen before anything is read, so that nothing said after it can be missed."""
        connection, lost = await self._connect()
        self._task = asyncio.create_task(self._listen(connection, lost), name="postgres-wakes")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def say(self, connection: Any, topics: Sequence[str]) -> None:
        """In the transaction of the change: told at its commit, never if it fails."""
        for payload in payloads(self._speaker, topics):
            await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)

    async def _listen(self, connection: "asyncpg.Connection[asyncpg.Record]", lost: asyncio.Event) -> None:
        while True:
            try:
                await _until_lost(connection, lost)
            finally:
                connection.terminate()
            log.warning("the connection for wake-ups is lost, connecting again")
            connection, lost = await self._reconnect()
            self._notify_all()

    async def _reconnect(self) -> "tuple[asyncpg.Connection[asyncpg.Record], asyncio.Event]":
        pause_s = _BACK_OFF_S_FIRST
        while True:
            try:
                return await self._connect()
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError) as error:
                log.warning("no connection for wake-ups yet", error=str(error), again_in_s=pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, _BACK_OFF_S_MAX)

    async def _connect(self) -> "tuple[asyncpg.Connection[asyncpg.Record], asyncio.Event]":
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._url, timeout=_ALIVE_EVERY_S)
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, self._heard)
        return connection, lost

    def _heard(self, _connection: object, _process: int, _channel: str, payload: object) -> None:
        said = _SAID.decode(str(payload))
        if said.speaker == self._speaker:
            return  # told directly, when the group was answered
        if not said.topics:
            self._notify_all()
        for topic in said.topics:
            self._notify(topic)


def payloads(speaker: str, topics: Sequence[str]) -> Iterator[str]:
    """As few messages as hold all topics; each stays under what PostgreSQL takes."""
    chunk: list[str] = []
    room = _PAYLOAD_BYTES_MAX - 64
    for topic in dict.fromkeys(topics):
        size = len(msgspec.json.encode(topic)) + 1
        if size > _PAYLOAD_BYTES_MAX - 64:
            yield _payload(speaker, [])
            continue
        if size > room:
            yield _payload(speaker, chunk)
            chunk, room = [], _PAYLOAD_BYTES_MAX - 64
        chunk.append(topic)
        room -= size
    if chunk:
        yield _payload(speaker, chunk)


def _payload(speaker: str, topics: list[str]) -> str:
    return msgspec.json.encode(_Said(speaker, topics)).decode()


async def _until_lost(connection: "asyncpg.Connection[asyncpg.Record]", lost: asyncio.Event) -> None:
    """A connection can be dead without a word, so it is asked from time to time."""
    while not lost.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ALIVE_EVERY_S):
                await lost.wait()
            return
        try:
            await connection.execute("SELECT 1", timeout=_ALIVE_EVERY_S)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return
