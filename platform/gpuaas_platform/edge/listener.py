"""The HTTP/1.1 protocol of the listeners: uvicorn's, which also takes an answer whole.

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
