"""The HTTP/1.1 protocol of the listeners: uvicorn's, which also takes an answer whole and has one timer per connection.

ASGI has an answer sent in two messages, and each goes to the kernel by itself. Nearly all of ours are short and known
whole: they go out in one piece, through a `Link` that `exchange` finds in the scope.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

Message = MutableMapping[str, Any]
_LINK = "gpuaas.link"


class Protocol(HttpToolsProtocol):
    """uvicorn starts a timer after each answer and cancels it at the next request, which costs every request. Here the
    timer of a connection keeps running, and when it fires it checks how long the connection was idle."""

    _idle_since_s: float | None = None
    """None while a request is being answered. A request with an incomplete head does not count."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._be_idle()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._be_idle()

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._ring_after(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _be_idle(self) -> None:
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._ring_after(self.timeout_keep_alive)

    def _ring_after(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn calls it when bytes arrive, which may be less than a request."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._idle_since_s = None
        cast("Message", cycle.scope)[_LINK] = Link(cycle)
        super()._start_asgi_task(cycle, app)


class Link:
    """What an exchange can do with its connection beside ASGI's messages."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body_is_here(self) -> bool:
        """Whether the whole body has arrived already."""
        return not self._cycle.more_body

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], content: bytes) -> bool:
        """Send as uvicorn does in the usual case: the client is connected, reads fast enough and keeps the connection.

        Return False when nothing was sent: then ASGI's two messages are needed."""
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        headers = [*cycle.default_headers, *headers]
        lines = b"\r\n".join(map(b": ".join, headers))
        if lines.count(b"\r") != len(headers) - 1 or lines.count(b"\n") != len(headers) - 1:
            return False  # a header with a line break in it; uvicorn reports it
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], lines, content))
        cycle.message_event.set()
        cycle.on_response()
        return True


def take_link(scope: Message) -> Link | None:
    """Remove the link from the scope, which would make a reference cycle. None on other servers."""
    link: Link | None = scope.pop(_LINK, None)
    return link
