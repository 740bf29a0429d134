"""The HTTP/1.1 protocol of the listeners: uvicorn's, which also takes an answer whole and has one timer per connection.

ASGI has an answer sent in two messages, and each goes to the kernel by itself. Nearly all of ours are short and known
whole: they go out in one piece, through a function that `exchange` finds in the scope.
"""

import functools
from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

SendWhole = Callable[[int, Sequence[tuple[bytes, bytes]], bytes], bool]
"""Takes status, headers and body; False when nothing was sent and the two messages are the way."""
_SEND_WHOLE = "gpuaas.send_whole"


class Protocol(HttpToolsProtocol):
    """uvicorn starts a timer after each answer and cancels it at the next request, which costs every request. Here the
    timer of a connection goes on, and when it rings looks how long nothing was asked."""

    _idle_since_s: float | None = None
    """None while a request is being answered, and before the first."""

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
        self._idle_since_s = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._ring_after(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self._idle_since_s is None:
            return
        left_s = self._idle_since_s + self.timeout_keep_alive - self.loop.time()
        if left_s > 0:
            self._ring_after(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _ring_after(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn calls it when something arrives and when the connection is gone."""
        self._idle_since_s = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        scope: Any = cycle.scope
        scope[_SEND_WHOLE] = functools.partial(_send_whole, cycle)
        super()._start_asgi_task(cycle, app)


def take_send_whole(scope: MutableMapping[str, Any]) -> SendWhole | None:
    """Out of the scope, so that the scope and what serves it do not hold each other. None on other servers."""
    send_whole: SendWhole | None = scope.pop(_SEND_WHOLE, None)
    return send_whole


def _send_whole(
    cycle: RequestResponseCycle, status: int, headers: Sequence[tuple[bytes, bytes]], content: bytes
) -> bool:
    """As uvicorn does it, where nothing is special: nobody left, is slow to read or wants the connection closed."""
    if cycle.disconnected or cycle.response_started or cycle.flow.write_paused or not cycle.keep_alive:
        return False
    headers = [*cycle.default_headers, *headers]
    lines = b"\r\n".join(map(b": ".join, headers))
    if lines.count(b"\r") != len(headers) - 1 or lines.count(b"\n") != len(headers) - 1:
        return False  # a header with a line break in it; uvicorn says so
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(b"%b%b\r\n\r\n%b" % (STATUS_LINE[status], lines, content))
    cycle.message_event.set()
    cycle.on_response()
    return True
