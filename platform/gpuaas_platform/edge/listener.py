"""HTTP/1.1 protocol of the listeners: uvicorn's, plus responses sent in one write and one timer per connection.

`heads` has the limits on the head of a request.

ASGI sends a response in two messages, which are two system calls. Nearly all of our responses are short and complete,
so they are sent in one call, through a `Link` that `exchange` takes from the ASGI scope.
"""

from collections.abc import MutableMapping, Sequence
from typing import Any, cast

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from gpuaas_platform.edge import heads

Message = MutableMapping[str, Any]
_LINK = "gpuaas.link"


class Protocol(heads.BoundedHeads):
    """Closes idle connections with one timer per connection. uvicorn starts and cancels a timer for each request, which
    takes time. Here the timer keeps running; when it fires, it checks how long the connection was idle."""

    _idle_since_s: float | None = None
    """None while a request is served. A request whose headers are incomplete does not count as served yet."""

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
        """Do nothing. uvicorn calls it when bytes arrive, to cancel the timer; but the request may be incomplete."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._idle_since_s = None
        cast("Message", cycle.scope)[_LINK] = Link(cycle)
        super()._start_asgi_task(cycle, app)


class Link:
    """Gives an exchange access to its connection, for actions that ASGI has no messages for."""

    __slots__ = ("_cycle",)

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body_is_here(self) -> bool:
        """Return whether the whole body has arrived."""
        return not self._cycle.more_body

    def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], content: bytes) -> bool:
        """Send the response in one write, if the client is connected, reads fast enough and keeps the connection.

        Return False if nothing was sent: the caller must then send ASGI's two messages."""
        cycle = self._cycle
        if cycle.disconnected or cycle.response_started or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        headers = [*cycle.default_headers, *headers]
        lines = b"\r\n".join(map(b": ".join, headers))
        if lines.count(b"\r") != len(headers) - 1 or lines.count(b"\n") != len(headers) - 1:
            return False  # a header contains a line break; uvicorn reports the error
        cycle.response_started = cycle.response_complete = True
        cycle.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], lines, content))
        cycle.message_event.set()
        cycle.on_response()
        return True


def take_link(scope: Message) -> Link | None:
    """Remove the link from the scope and return it: there it would be a reference cycle. None on other servers."""
    link: Link | None = scope.pop(_LINK, None)
    return link
