"""Streams, after `http` has decided everything as for every other route: an idle watcher should cost next to nothing.

From the first byte the stream belongs to a guard, which asks every few seconds whether this caller may still see it.
"""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from gpuaas_contract import errors

from gpuaas_platform.call import Call, CutOff, Source
from gpuaas_platform.edge.exchange import Receive, Send

log = structlog.get_logger()

MEDIA_TYPE = b"text/event-stream; charset=utf-8"
HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
    # Some bytes were chosen by tenants: no browser shall take them for a page of ours.
    (b"x-content-type-options", b"nosniff"),
)
RETRY = {"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True}
"""What a stream of events begins with: how long a client waits before it reconnects."""
CHECK_S_MAX = 1.0
_SEND_S_MAX = 30.0


def media_type(name: str) -> bytes:
    return f"{name}; charset=utf-8".encode() if name.startswith("text/") else name.encode()


class Guard:
    """Who may see a set of streams: one token on one path."""

    def __init__(self, key: tuple[str, bytes], check: Callable[[], Awaitable[object]]) -> None:
        self.key, self.check = key, check
        self.sources: set[Source] = set()

    def end(self) -> None:
        for source in self.sources:
            source.end()


class Guards:
    """One check for each guard and round, however many streams it has open. Runs only while there are any."""

    def __init__(self, recheck_s: float) -> None:
        self._recheck_s = recheck_s
        self._open: dict[tuple[str, bytes], Guard] = {}
        self._rounds: asyncio.Task[None] | None = None

    def join(self, key: tuple[str, bytes], check: Callable[[], Awaitable[object]], source: Source) -> Guard:
        guard = self._open.get(key)
        if guard is None:
            guard = self._open[key] = Guard(key, check)
        guard.sources.add(source)
        if self._rounds is None or self._rounds.done():
            # A context of its own: it is not the work of whoever happened to open the first stream.
            self._rounds = asyncio.create_task(self._run(), name="stream guards", context=contextvars.Context())
        return guard

    def leave(self, guard: Guard, source: Source) -> None:
        guard.sources.discard(source)
        if not guard.sources and self._open.get(guard.key) is guard:
            del self._open[guard.key]

    async def _run(self) -> None:
        while self._open:
            await asyncio.sleep(self._recheck_s)
            try:
                await self._check_all()
            except Exception:
                # Not knowing is no permission. Clients come back with their position and meet the same question.
                log.exception("could not ask who may watch, ending every stream")
                for guard in self._open.values():
                    guard.end()

    async def _check_all(self) -> None:
        for guard in list(self._open.values()):
            try:
                async with asyncio.timeout(CHECK_S_MAX):
                    await guard.check()
            except errors.ApiError as refusal:
                log.info(
                    "a stream's caller may no longer watch", path=guard.key[1].decode("latin-1"), code=refusal.code
                )
                guard.end()
            await asyncio.sleep(0)


async def pump(source: Source, receive: Receive, send: Send) -> None:
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        while (said := await source.next()) and not gone.done():
            async with asyncio.timeout(_SEND_S_MAX):
                await send({"type": "http.response.body", "body": said, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        log.info("a watcher took no bytes for too long and was dropped; it can resume")
    except CutOff as reason:
        log.info("a stream was cut before its end", why=str(reason))
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def resumed(call: Call) -> Call:
    """A client that reconnects says how far it came; that is newer than what its address says."""
    said = call.header(b"last-event-id")
    if not said:
        return call
    try:
        values = {**msgspec.structs.asdict(call.query), "after": said}
        return msgspec.structs.replace(call, query=msgspec.convert(values, type(call.query), strict=False))
    except msgspec.ValidationError as error:
        raise errors.ValidationFailed(f"Last-Event-ID is not a cursor: {said[:40]!r}") from error
