"""HTTP/1.1 protocol of the listeners: one timer per connection.

`cycle` serves each request, `heads` has the limits on the head of a request.
"""

from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gpuaas_platform.edge import heads


class Protocol(heads.BoundedHeads):
    """Closes idle connections with one timer per connection. uvicorn starts and cancels a timer for each request, which
    takes time. Here the timer keeps running; when it fires, it checks how long the connection was idle.

    No request starts a timer: it would keep the context of that request, and with it the request, in memory."""

    _idle_since_s: float | None = None
    """None while a request is served. A request whose headers are incomplete does not count as served yet."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._idle_since_s = self.loop.time()
        self._ring_after(self.timeout_keep_alive)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle_since_s = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        now_s = self.loop.time()
        left_s = (self._idle_since_s or now_s) + self.timeout_keep_alive - now_s
        if left_s > 0 or self._idle_since_s is None:
            self._ring_after(left_s)
        else:
            super().timeout_keep_alive_handler()

    def _ring_after(self, wait_s: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _unset_keepalive_if_required(self) -> None:
        """Do nothing. uvicorn calls it when bytes arrive, to cancel the timer; but the request may be incomplete."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._idle_since_s = None
        super()._start_asgi_task(cycle, app)
