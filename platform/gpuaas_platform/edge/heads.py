"""Limits on the head of a request, for every connection. `cycle` serves the requests, `listener` adds the rest of the
protocol."""

import httptools
from gpuaas_contract import errors
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from gpuaas_platform.edge import cycle, response
from gpuaas_platform.kit import ids

HEAD_BYTES_MAX = 32 * 1024
"""Largest head: the request line and the headers. Also the most that may arrive between two parts of a body."""
HEAD_LINES_MAX = 100
"""Most headers of a request; also most trailers of a chunked body whose end has not arrived."""
PIPELINED_MAX = 100
"""Most requests of a connection that wait for the response to an earlier one."""
_NOT_HTTP = "The request is not valid HTTP/1.1."


class _Refused(Exception):
    """Stops the parser."""


class BoundedHeads(cycle.Cycles):
    """Refuses a head that is too large, before the parser stores more of it. uvicorn and its parser have no limit, and
    a head is read before the caller is known.

    Bytes are counted as they arrive: those since the end of the last head, of the last message or of the last part of
    a body. Bytes that follow such an end in the same read are not counted again, so a head that was sent in one piece
    with an earlier request can be twice as large. Lines are counted after each read."""

    _head_bytes_left = HEAD_BYTES_MAX

    def data_received(self, data: bytes | memoryview) -> None:
        left = self._head_bytes_left - len(data)
        if left < 0:
            self._receive_in_parts(memoryview(data))
            return
        self._head_bytes_left = left
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            return  # there are no web sockets here; the request is served without the upgrade
        except httptools.HttpParserError:
            too_large = len(self.headers) > HEAD_LINES_MAX
            self._refuse(errors.HeadTooLarge() if too_large else errors.InvalidRequest(_NOT_HTTP))
            return
        if len(self.headers) > HEAD_LINES_MAX:
            self._refuse(errors.HeadTooLarge())

    def _receive_in_parts(self, data: memoryview) -> None:
        """Give the parser as much as the head may still have. If that ends the head, the rest is body or a new head."""
        while data and not self.transport.is_closing():
            size = self._head_bytes_left
            if size == 0:
                self._refuse(errors.HeadTooLarge())
                return
            part, data = data[:size], data[size:]
            self.data_received(part)

    def on_headers_complete(self) -> None:
        self._head_bytes_left = HEAD_BYTES_MAX
        if len(self.headers) > HEAD_LINES_MAX or len(self.pipeline) >= PIPELINED_MAX:
            raise _Refused
        super().on_headers_complete()
        # Trailers are ignored. Else they would become headers of the request, which is being served already.
        self.headers = []

    def on_body(self, body: bytes) -> None:
        self._head_bytes_left = HEAD_BYTES_MAX
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The same as in uvicorn, without the check for web sockets."""
        self._head_bytes_left, self.headers = HEAD_BYTES_MAX, []
        if not self.cycle.response_complete:
            self.cycle.more_body = False
            self.cycle.message_event.set()

    def _refuse(self, error: errors.ApiError) -> None:
        """Close the connection. Send the error first, unless the client would take it as the response to an earlier
        request."""
        last = self.cycle
        is_in_body = last is not None and last.more_body and not last.response_started and not self.pipeline
        if last is None or last.response_complete or is_in_body:
            self.transport.write(self._encoded(response.problem(error, ids.new("cor"))))
        if is_in_body:
            last.disconnected = True
            last.message_event.set()
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
