"""One request as it came and one answer as it goes: the ASGI side of the edge. `http` makes one per request."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec
from gpuaas_contract import errors
from starlette.requests import Request

from gpuaas_platform.call import Caller, Source
from gpuaas_platform.edge import decode as decoding
from gpuaas_platform.edge import listener, telemetry
from gpuaas_platform.kit import ids

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Header = tuple[bytes, bytes]

ANONYMOUS = Caller("anonymous", "")
JSON = b"application/json"
BODY_S_MAX = 30.0
"""Whoever sends a body more slowly holds a place that others need."""
_CORRELATION_MAX = 128


class Answer(msgspec.Struct, frozen=True):
    status: int
    content: bytes
    media_type: bytes = JSON
    headers: tuple[Header, ...] = ()
    code: str = ""
    """Of the problem, for the log."""
    source: Source | None = None
    """A stream: `streams` sends it, `content` is empty."""


class Exchange:
    """Nothing of a request is parsed twice: headers once here, the rest by whoever needs it first."""

    __slots__ = (
        "_link",
        "_scope",
        "caller",
        "correlation_id",
        "headers",
        "method",
        "now",
        "org_id",
        "path",
        "peer",
        "project_id",
        "query_string",
        "receive",
        "route",
        "started_s",
        "trace",
    )

    def __init__(self, scope: Message, receive: Receive, now: datetime.datetime) -> None:
        self.now = now
        self.started_s = time.perf_counter()
        self._scope, self.receive = scope, receive
        self._link = listener.take_link(scope)
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.method: str = scope["method"]
        self.path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.query_string: bytes = scope.get("query_string", b"")
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.correlation_id = _correlation_id(self.headers.get(b"x-correlation-id", b""))
        self.trace = telemetry.trace_of(self.headers.get(b"traceparent", b"").decode("latin-1"))
        self.caller, self.org_id, self.project_id, self.route = ANONYMOUS, "", "", ""

    def header(self, name: bytes) -> str:
        found = self.headers.get(name)
        return found.decode("latin-1") if found else ""

    def log_fields(self) -> dict[str, str]:
        """For whom whatever is logged meanwhile happens."""
        return {
            "correlation_id": self.correlation_id,
            "trace_id": self.trace.trace_id,
            "org_id": self.org_id,
            "project_id": self.project_id,
            "actor": f"{self.caller.actor_type}:{self.caller.actor_id}",
        }

    async def body(self) -> bytes:
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > decoding.BODY_MAX_BYTES:
            raise errors.BodyTooLarge
        if self._link is not None and self._link.body_is_here():
            # Nearly always: no clock is needed where nothing is waited for.
            body: bytes = (await self.receive()).get("body", b"")
        else:
            body = await self._body_to_come()
        if body:
            decoding.check_content_type(self.header(b"content-type"))
        return body

    async def _body_to_come(self) -> bytes:
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_S_MAX):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise errors.InvalidRequest("The body ended before it was whole.")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > decoding.BODY_MAX_BYTES:
                        raise errors.BodyTooLarge
        except TimeoutError as error:
            raise errors.InvalidRequest(f"The body was not whole after {BODY_S_MAX:g} s.") from error
        return bytes(body)

    async def is_gone(self) -> bool:
        return await Request(self._scope, self.receive).is_disconnected()

    def response_start(self, answer: Answer) -> Message:
        return {"type": "http.response.start", "status": answer.status, "headers": self._headers(answer)}

    def send_whole(self, answer: Answer) -> bool:
        """Whether the server took it; else `send` is the way."""
        content = answer.content if self.method != "HEAD" else b""
        return self._link is not None and self._link.send_whole(answer.status, self._headers(answer), content)

    async def send(self, send: Send, answer: Answer) -> None:
        await send(self.response_start(answer))
        await send({"type": "http.response.body", "body": answer.content if self.method != "HEAD" else b""})

    def _headers(self, answer: Answer) -> list[Header]:
        headers = [(b"x-correlation-id", self.correlation_id.encode()), (b"traceparent", self.trace.header().encode())]
        if answer.status != 304:
            headers.append((b"content-type", answer.media_type))
        if answer.source is None and answer.status != 304:
            headers.append((b"content-length", b"%d" % len(answer.content)))
        return [*headers, *answer.headers]


def _correlation_id(given: bytes) -> str:
    if 0 < len(given) <= _CORRELATION_MAX and given.isascii() and given.decode().isprintable():
        return given.decode()
    return ids.new("cor")
