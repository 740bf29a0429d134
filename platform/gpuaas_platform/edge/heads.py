"""Limits on the head of a request, for every connection. `listener` adds the rest of the protocol."""

from typing import cast

from gpuaas_contract import errors
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from gpuaas_platform.edge import response
from gpuaas_platform.kit import ids

HEAD_BYTES_MAX = 32 * 1024
"""Largest head: the request line and the headers. Also the most that may arrive between two parts of a body."""
HEAD_LINES_MAX = 100
"""Most headers of a request; also most trailers after a chunked body."""
PIPELINED_MAX = 100
"""Most requests of a connection that wait for the response to an earlier one."""


class _Refused(Exception):
    """Stops the parser, which then calls `send_400_response`."""


class BoundedHeads(HttpToolsProtocol):
    """Refuses a head that is too large, before the parser stores more of it. uvicorn and its parser have no limit, and
    a head is read before the caller is known.

    Bytes are counted as they arrive: those since the end of the last head, of the last message or of the last part of
    a body. Bytes that follow such an end in the same read are not counted again, so a head that was sent in one piece
    with an earlier request can be twice as large."""

    _head_bytes_left = HEAD_BYTES_MAX
    _refusal: errors.ApiError | None = None

    def data_received(self, data: bytes) -> None:
        if len(data) > self._head_bytes_left:
            self._receive_in_parts(memoryview(data))
            return
        self._head_bytes_left -= len(data)
        super().data_received(data)

    def _receive_in_parts(self, data: memoryview) -> None:
        """Give the parser as much as the head may still have. If that ends the head, the rest is body or a new head."""
        while data and not self.transport.is_closing():
            size = self._head_bytes_left
            if size == 0:
                self._refuse(errors.HeadTooLarge())
                return
            part, data = data[:size], data[size:]
            self._head_bytes_left -= len(part)
            super().data_received(cast("bytes", part))

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= HEAD_LINES_MAX:
            self._refusal = errors.HeadTooLarge()
            raise _Refused
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._head_bytes_left = HEAD_BYTES_MAX
        if len(self.pipeline) >= PIPELINED_MAX:
            raise _Refused
        super().on_headers_complete()
        # Trailers are ignored. uvicorn would append them to the headers of the request, which is being served already.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._head_bytes_left = HEAD_BYTES_MAX
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes_left = HEAD_BYTES_MAX
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn when the parser fails or was stopped."""
        self._refuse(self._refusal or errors.InvalidRequest(msg))

    def _refuse(self, error: errors.ApiError) -> None:
        """Close the connection. Send the error first, unless the client would take it as the response to an earlier
        request."""
        cycle = self.cycle
        is_in_body = cycle is not None and cycle.more_body and not cycle.response_started and not self.pipeline
        if cycle is None or cycle.response_complete or is_in_body:
            self.transport.write(self._encoded(response.problem(error, ids.new("cor"))))
        if is_in_body:
            cycle.disconnected = True
            cycle.message_event.set()
        self.transport.close()

    def _encoded(self, refusal: response.Response) -> bytes:
        length = b"%d" % len(refusal.content)
        fixed = [response.NO_STORE, (b"content-type", refusal.media_type), (b"content-length", length)]
        headers = [*self.server_state.default_headers, *fixed, *refusal.headers, (b"connection", b"close")]
        return b"%b%b\r\n\r\n%b" % (
            STATUS_LINE[refusal.status],
            b"\r\n".join(map(b": ".join, headers)),
            refusal.content,
        )
