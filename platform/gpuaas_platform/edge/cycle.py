"""One request of a connection and its response, with fewer objects and calls than in uvicorn, whose class this is.

`heads` adds the limits on the head of a request, `listener` the timer of a connection. `exchange` takes the cycle of
its request from the ASGI scope, for actions that ASGI has no messages for. A long poll or a stream keeps its cycle
for a long time, so a cycle stores only what differs from the values of its class.
"""

import asyncio
import collections
import functools
import logging
import urllib.parse
from collections.abc import MutableMapping, Sequence
from typing import Any, cast

import httptools
from uvicorn._types import ASGI3Application, HTTPScope
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

Message = MutableMapping[str, Any]
_KEY = "gpuaas.cycle"
_ASGI = {"version": "3.0", "spec_version": "2.3"}
_LOGGER = logging.getLogger("uvicorn.error")
_USUAL = ("Accept", "Accept-Encoding", "Authorization", "Connection", "Content-Length", "Content-Type", "Host")
_OWN = ("If-Match", "If-None-Match", "Traceparent", "User-Agent", "X-Correlation-ID", "X-Idempotency-Key")
_NAMES = {form.encode(): name.lower().encode() for name in (*_USUAL, *_OWN) for form in (name, name.lower())}
"""Spelling of a header in a request -> its name, as one object for all requests."""


class Cycle(RequestResponseCycle):
    logger = access_logger = _LOGGER
    access_log = False
    disconnected = response_started = response_complete = waiting_for_100_continue = False
    more_body = True
    chunked_encoding: bool | None = None
    expected_content_length = 0
    body: bytes | bytearray = b""  # type: ignore[assignment]
    task: asyncio.Task[None]

    def __init__(self, protocol: "Cycles", scope: Message, headers: dict[bytes, bytes], *, keep_alive: bool) -> None:
        """`headers` are those of the scope, by name. Of a repeated header, it has the last value."""
        self.scope, self.headers = cast("HTTPScope", scope), headers
        self.transport, self.flow, self._tasks = protocol.transport, protocol.flow, protocol.tasks
        self.default_headers = protocol.server_state.default_headers
        self.message_event = _Signal()  # type: ignore[assignment]
        self.keep_alive, self.on_response = keep_alive, protocol.on_response_complete
        if headers.get(b"expect", b"").lower() == b"100-continue":
            self.waiting_for_100_continue = True

    async def run_asgi(self, app: ASGI3Application) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except BaseException as error:  # also a cancellation, as in uvicorn: the caller gets a response
            _LOGGER.error("Exception in ASGI application\n", exc_info=error)
            await self._fail()
        else:
            if not (self.response_complete or self.disconnected):
                _LOGGER.error("The ASGI application returned without a complete response.")
                await self._fail()
        finally:
            self._tasks.discard(self.task)
            self.on_response = _nothing  # else the cycle and its protocol would refer to each other
            del self.task

    async def _fail(self) -> None:
        if self.response_started:
            self.transport.close()
        else:
            await self.send_500_response()

    def add_body(self, part: bytes) -> None:
        """Store a part of the body. Nearly all bodies have one part, which is not copied."""
        if not self.body:
            self.body = part
        elif isinstance(self.body, bytearray):
            self.body += part
        else:
            self.body = bytearray(self.body) + part

    def take_body(self) -> bytes | None:
        """Return the body if all of it has arrived, which is the usual case; else None."""
        if self.more_body:
            return None
        body, self.body = bytes(self.body), b""
        self.message_event.clear()
        return body

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], content: bytes) -> bool:
        """Send the response in one write, if the client is connected, reads fast enough and keeps the connection. ASGI
        sends a response in two messages, which are two system calls.

        Return False if nothing was sent: the caller must then send ASGI's two messages."""
        if self.disconnected or self.response_started or self.flow.write_paused or not self.keep_alive:
            return False
        headers = [*self.default_headers, *headers]
        lines = b"\r\n".join(map(b": ".join, headers))
        if lines.count(b"\r") != len(headers) - 1 or lines.count(b"\n") != len(headers) - 1:
            return False  # a header contains a line break; uvicorn reports the error
        self.response_started = self.response_complete = True
        self.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], lines, content))
        self.message_event.set()
        self.on_response()
        return True


class _Signal:
    """An `asyncio.Event` that is made only if there is a wait for it, which is rare."""

    __slots__ = ("_event", "_is_set")

    def __init__(self) -> None:
        self._is_set, self._event = False, cast("asyncio.Event | None", None)

    def set(self) -> None:
        self._is_set = True
        if self._event is not None:
            self._event.set()

    def clear(self) -> None:
        self._is_set = False
        if self._event is not None:
            self._event.clear()

    async def wait(self) -> None:
        if not self._is_set:
            self._event = self._event or asyncio.Event()
            await self._event.wait()


class _Flow(FlowControl):
    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.read_paused = self.write_paused = False
        self._is_writable_event = _Signal()  # type: ignore[assignment]
        self._is_writable_event.set()


class Cycles(HttpToolsProtocol):
    """Starts a cycle for each request of a connection. uvicorn's options for web sockets, access logs, a limit of
    concurrent requests and an application that starts and stops with the server have no effect here."""

    logger = access_logger = _LOGGER
    timeout_keep_alive_task: asyncio.TimerHandle | None = None
    pipeline: "collections.deque[tuple[RequestResponseCycle, ASGI3Application]] | tuple[()]" = ()  # type: ignore[assignment]
    cycle: Cycle = None  # type: ignore[assignment]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.config, self.app, self.loop = config, config.loaded_app, _loop or asyncio.get_running_loop()
        self.server_state, self.connections, self.tasks = server_state, server_state.connections, server_state.tasks
        self.timeout_keep_alive = config.timeout_keep_alive
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # for pipelined requests, as in uvicorn
        self.url, self.headers = b"", list[tuple[bytes, bytes]]()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.flow = _Flow(transport)

    def on_message_begin(self) -> None:
        self.url, self.headers = b"", []

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((_NAMES.get(name) or name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, version = self.parser, self.parser.get_http_version()
        raw_path, query = _split(self.url)
        path = raw_path.decode("ascii")
        scope: Message = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": parser.get_method().decode("ascii"),
            "root_path": "",
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
        }
        keep_alive = version != "1.0" and parser.should_keep_alive()
        earlier, cycle = self.cycle, Cycle(self, scope, dict(self.headers), keep_alive=keep_alive)
        self.cycle = cycle
        if earlier is None or earlier.response_complete:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline = self.pipeline or collections.deque()
            self.pipeline.appendleft((cycle, self.app))

    def on_body(self, body: bytes) -> None:
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.add_body(body)
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        started = cast("Cycle", cycle)
        cast("Message", started.scope)[_KEY] = started
        started.task = self.loop.create_task(started.run_asgi(app))
        self.tasks.add(started.task)


def take(scope: Message) -> Cycle | None:
    """Remove the cycle from the scope and return it: there it would be a reference cycle. None on other servers.

    The cycle forgets the scope, so that a long poll does not keep it in memory."""
    cycle: Cycle | None = scope.pop(_KEY, None)
    if cycle is not None:
        cycle.scope = _kept(scope["method"])
    return cycle


@functools.cache
def _kept(method: str) -> HTTPScope:
    """Return the only part of a scope that uvicorn uses to send a response. The parser accepts about forty methods."""
    return cast("HTTPScope", {"method": method})


def _split(url: bytes) -> tuple[bytes, bytes]:
    """Return the path and the query of the target of a request. It is nearly always a path."""
    if url.startswith(b"/") and b"#" not in url:
        path, _, query = url.partition(b"?")
        return path, query
    parsed = httptools.parse_url(url)
    return parsed.path, parsed.query or b""


def _nothing() -> None:
    """Replaces the callback of a cycle that has ended."""
