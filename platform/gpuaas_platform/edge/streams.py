"""Send streams, after `http` has authorised the request. An idle stream uses almost no time and memory.

While a stream is open, a guard checks every few seconds whether the caller may still see it.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from gpuaas_contract import errors

from gpuaas_platform.call import Call, CutOff, Source
from gpuaas_platform.edge.exchange import Receive, Send

log = structlog.get_logger()

MEDIA_TYPE = b"text/event-stream; charset=utf-8"
HEADERS = (
    (b"x-accel-buffering", b"no"),
    # Tenants control part of the content, so a browser must not show it as a web page of the platform.
    (b"x-content-type-options", b"nosniff"),
)
RETRY = {"type": "http.response.body", "body": b"retry: 1000\n\n", "more_body": True}
"""First message of an event stream. It sets how long a client waits before it reconnects."""
CHECK_S_MAX = 1.0
_SEND_S_MAX = 30.0
Key = tuple[str, bytes, str]
"""Token, path and project of a stream. The path can name the project, and after a rename it names another one."""


class Guard:
    """Checks whether the streams of one token on one path of one project may continue."""

    def __init__(self, caller_id: str, key: Key, check: Callable[[], Awaitable[object]]) -> None:
        self.caller_id, self.key, self.check = caller_id, key, check
        self.sources: set[Source] = set()

    def end(self) -> None:
        for source in self.sources:
            source.end()


class Guards:
    """Runs the check of every guard at intervals while streams are open. Streams of the same guard share a check."""

    def __init__(self, recheck_s: float, per_caller_max: int = 0) -> None:
        self._recheck_s, self._per_caller_max = recheck_s, per_caller_max
        self._open: dict[Key, Guard] = {}
        self._counts: Counter[str] = Counter()
        """Caller -> number of open streams."""
        self._rounds: asyncio.Task[None] | None = None

    def refuse_too_many(self, caller_id: str) -> None:
        if 0 < self._per_caller_max <= self._counts[caller_id]:
            raise errors.TooManyStreams(details={"streams_max": self._per_caller_max})

    def join(self, caller_id: str, key: Key, check: Callable[[], Awaitable[object]], source: Source) -> Guard:
        guard = self._open.get(key)
        if guard is None:
            guard = self._open[key] = Guard(caller_id, key, check)
        guard.sources.add(source)
        self._counts[caller_id] += 1
        if self._rounds is None or self._rounds.done():
            # The task gets its own context, so that its log lines do not carry the fields of the first caller.
            self._rounds = asyncio.create_task(self._run(), name="stream guards", context=contextvars.Context())
        return guard

    def leave(self, guard: Guard, source: Source) -> None:
        guard.sources.discard(source)
        self._counts[guard.caller_id] -= 1
        if not self._counts[guard.caller_id]:
            del self._counts[guard.caller_id]
        if not guard.sources and self._open.get(guard.key) is guard:
            del self._open[guard.key]

    async def _run(self) -> None:
        while self._open:
            await asyncio.sleep(self._recheck_s)
            try:
                await self._check_all()
            except Exception:
                # Streams must not continue unchecked. Clients reconnect with their position and are checked again.
                log.exception("streams.check_failed")
                for guard in self._open.values():
                    guard.end()

    async def _check_all(self) -> None:
        for guard in list(self._open.values()):
            try:
                async with asyncio.timeout(CHECK_S_MAX):
                    await guard.check()
            except errors.ApiError as refusal:
                log.info("stream.refused", path=guard.key[1].decode("latin-1"), code=refusal.code)
                guard.end()
            await asyncio.sleep(0)


async def pump(source: Source, receive: Receive, send: Send) -> None:
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        while (data := await source.next()) and not gone.done():
            async with asyncio.timeout(_SEND_S_MAX):
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    except TimeoutError:
        log.info("stream.reader_too_slow", timeout_s=_SEND_S_MAX)
    except CutOff as reason:
        log.info("stream.cut", reason=str(reason))
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def resumed(call: Call) -> Call:
    """Return the call with the position from Last-Event-ID: on a reconnect it is newer than the one in the URL."""
    position = call.header(b"last-event-id")
    if not position:
        return call
    try:
        values = {**msgspec.structs.asdict(call.query), "after": position}
        return msgspec.structs.replace(call, query=msgspec.convert(values, type(call.query), strict=False))
    except msgspec.ValidationError as error:
        raise errors.ValidationFailed(f"Last-Event-ID is not a cursor: {position[:40]!r}") from error
