"""One request and its response: the ASGI side of the edge. `http` makes one exchange per request."""

import asyncio
import datetime
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from gpuaas_contract import errors
from starlette.requests import Request

from gpuaas_platform.call import Caller
from gpuaas_platform.edge import cycle, decode
from gpuaas_platform.edge.response import NO_STORE, Header, Response
from gpuaas_platform.kit import ids, peers, traces

Message = cycle.Message
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

ANONYMOUS = Caller("anonymous", "")
BODY_S_MAX = 30.0
"""A body that takes longer than this to arrive is refused, so that a slow sender does not keep a connection busy."""
_CORRELATION_MAX = 128
_SENT_ONCE = (
    b"authorization",
    b"content-type",
    b"host",
    b"idempotency-key",
    b"if-match",
    b"if-none-match",
    b"last-event-id",
    b"transfer-encoding",
    b"x-idempotency-key",
    b"x-project-id",
)
"""Headers that decide what a request does. Of a repeated one the platform would use the last and a proxy perhaps the
first, so it is refused."""
_OF_REQUEST = (
    "_cycle",
    "_repeated",
    "_scope",
    "headers",
    "method",
    "path",
    "peer",
    "query_string",
    "receive",
    "correlation_id",
    "trace",
)
_OF_PROGRESS = ("_admit", "admitted_s", "caller", "is_stranger", "now", "org_id", "project_id", "route", "started_s")


class Exchange:
    """One request and the data collected while it is served. Headers are parsed at the start, the body on demand."""

    __slots__ = (*_OF_REQUEST, *_OF_PROGRESS)

    def __init__(
        self, scope: Message, receive: Receive, now: datetime.datetime, admit: "Callable[[Exchange], Awaitable[Caller]]"
    ) -> None:
        self.now = now
        self._admit = admit
        self.started_s = time.perf_counter()
        self._cycle, self.receive = cycle.take(scope), receive
        self._scope = scope if self._cycle is None else None
        lines: list[Header] = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(lines) if self._cycle is None else self._cycle.headers
        self._repeated = lines if len(lines) != len(self.headers) else ()
        """All headers, if one of them is repeated. In `headers` it has its last value."""
        self.method: str = scope["method"]
        self.path: bytes = scope.get("raw_path") or scope["path"].encode()
        self.query_string: bytes = scope.get("query_string", b"")
        client = scope.get("client")
        self.peer: str = client[0] if client else ""
        self.correlation_id = _correlation_id(self.headers.get(b"x-correlation-id", b""))
        self.trace = traces.trace_of(self.header(b"traceparent"))
        self.caller, self.org_id, self.project_id, self.route = ANONYMOUS, "", "", ""
        self.is_stranger = True
        """Whether the caller may not see the project or organisation that the route names."""
        self.admitted_s = self.started_s
        """When the caller's permission for this request was last checked (`time.perf_counter`)."""

    def header(self, name: bytes) -> str:
        value = self.headers.get(name)
        return value.decode("latin-1") if value else ""

    def header_lines(self, name: bytes) -> list[str]:
        """Return the values of a header that may be sent in several lines, in their order."""
        lines = self._repeated or self.headers.items()
        return [value.decode("latin-1") for key, value in lines if key == name]

    def refuse_repeated_headers(self) -> None:
        if not self._repeated:
            return
        for name in _SENT_ONCE:
            if len(self.header_lines(name)) > 1:
                text = f"The request has the header `{name.decode()}` more than once."
                raise errors.InvalidRequest(text, details={"field": name.decode()})

    def is_local(self) -> bool:
        """Return whether a program on this machine sent the request itself, not a proxy on this machine for another
        host."""
        return peers.is_loopback(self.peer) and not any(
            name.encode() in self.headers for name in peers.FORWARDED_HEADERS
        )

    async def admit_again(self) -> Caller:
        """Check again that the caller may make this request; raise if not."""
        return await self._admit(self)

    def log_fields(self) -> dict[str, str]:
        """Return the fields that every log line of this request gets."""
        return {
            "correlation_id": self.correlation_id,
            "trace_id": self.trace.trace_id,
            "org_id": self.org_id,
            "project_id": self.project_id,
            "actor": self.actor(),
        }

    def actor(self) -> str:
        return f"{self.caller.actor_type}:{self.caller.actor_id}"

    async def body(self) -> bytes:
        if self._content_length() > decode.BODY_MAX_BYTES:
            raise errors.BodyTooLarge
        body = self._cycle.take_body() if self._cycle is not None else None
        if body is None:
            body = await self._rest_of_body()
        if body:
            decode.check_content_type(self.header(b"content-type"))
        return body

    async def _rest_of_body(self) -> bytes:
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_S_MAX):
                while more:
                    message = await self.receive()
                    if message["type"] == "http.disconnect":
                        raise errors.InvalidRequest("The body ended early: the connection was closed.")
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > decode.BODY_MAX_BYTES:
                        raise errors.BodyTooLarge
        except TimeoutError as error:
            raise errors.InvalidRequest(f"The body was not complete after {BODY_S_MAX:g} s.") from error
        return bytes(body)

    async def chunks(self, bytes_max: int) -> AsyncIterator[bytes]:
        """Yield the raw body in chunks as they arrive. Raise if it is too large, too slow or incomplete."""
        refused = errors.BodyTooLarge(fix=f"Send at most {bytes_max} bytes.")
        if self._content_length() > bytes_max:
            raise refused
        taken, more = 0, True
        while more:
            try:
                async with asyncio.timeout(BODY_S_MAX):
                    message = await self.receive()
            except TimeoutError as error:
                raise errors.InvalidRequest(f"Nothing more of the body came for {BODY_S_MAX:g} s.") from error
            if message["type"] == "http.disconnect":
                raise errors.InvalidRequest("The connection ended before the whole request body had arrived.")
            chunk, more = message.get("body", b""), message.get("more_body", False)
            taken += len(chunk)
            if taken > bytes_max:
                raise refused
            if chunk:
                yield chunk

    def _content_length(self) -> int:
        """Return the value of the Content-Length header; 0 if it is missing or not a number."""
        length = self.headers.get(b"content-length", b"")
        return int(length) if length.isdigit() else 0

    async def is_gone(self) -> bool:
        """Return whether the caller closed the connection."""
        if self._scope is None:
            return self._cycle is not None and self._cycle.disconnected
        return await Request(self._scope, self.receive).is_disconnected()

    def response_start(self, response: Response) -> Message:
        return {"type": "http.response.start", "status": response.status, "headers": self._headers(response)}

    def send_whole(self, response: Response) -> bool:
        """Send the response in one write. Return False if that is not possible; the caller then uses `send`."""
        content = response.content if self.method != "HEAD" else b""
        return self._cycle is not None and self._cycle.send_whole(response.status, self._headers(response), content)

    async def send(self, send: Send, response: Response) -> None:
        await send(self.response_start(response))
        await send({"type": "http.response.body", "body": response.content if self.method != "HEAD" else b""})

    def _headers(self, response: Response) -> list[Header]:
        traced = (b"traceparent", self.trace.header.encode())
        headers = [(b"x-correlation-id", self.correlation_id.encode()), traced, NO_STORE]
        if response.status != 304:
            headers.append((b"content-type", response.media_type))
        if response.source is None and response.status != 304:
            headers.append((b"content-length", b"%d" % len(response.content)))
        return [*headers, *response.headers]


def _correlation_id(given: bytes) -> str:
    if 0 < len(given) <= _CORRELATION_MAX and given.isascii() and given.decode().isprintable():
        return given.decode()
    return ids.new("cor")
