"""Heads of requests are bounded, and a request that is within the limits is served however it arrives."""

import asyncio
import contextlib
import tracemalloc
from collections.abc import AsyncIterator

import pytest
import uvicorn
from gpuaas_platform.edge import exchange, heads, listener

DEADLINE_S = 60
LIMIT = heads.HEAD_BYTES_MAX
LINES = heads.HEAD_LINES_MAX
OK = b"HTTP/1.1 200 OK"
REFUSED = b"HTTP/1.1 431 Request Header Fields Too Large"


class Application:
    """Answers each request after its body has arrived."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[bytes, bytes]]] = []
        self.body_bytes = 0

    async def __call__(self, scope: exchange.Message, receive: exchange.Receive, send: exchange.Send) -> None:
        message = await receive()
        self.headers.append(list(scope["headers"]))
        while message["type"] == "http.request":
            self.body_bytes += len(message["body"])
            if not message["more_body"]:
                break
            message = await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})


@contextlib.asynccontextmanager
async def _connected(
    application: Application,
) -> AsyncIterator[tuple[asyncio.StreamReader, listener.Protocol, asyncio.StreamWriter]]:
    config = uvicorn.Config(application, log_config=None, lifespan="off", http=listener.Protocol, ws="none")
    config.load()
    state = uvicorn.Server(config).server_state
    accepted: asyncio.Future[listener.Protocol] = asyncio.get_running_loop().create_future()

    def accept() -> listener.Protocol:
        accepted.set_result(listener.Protocol(config=config, server_state=state, app_state={}))
        return accepted.result()

    async with (
        asyncio.timeout(DEADLINE_S),
        await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0) as to,
    ):
        reader, writer = await asyncio.open_connection(*to.sockets[0].getsockname())
        yield reader, await accepted, writer
        writer.close()


async def _statuses(*received: bytes, count: int = 1, application: Application | None = None) -> list[bytes]:
    """Let a connection receive these bytes, one read for each, and return the first lines of the responses."""
    async with _connected(application or Application()) as (reader, protocol, _):
        for data in received:
            if not protocol.transport.is_closing():
                protocol.data_received(data)
        lines = []
        for _ in range(count):
            lines.append((await reader.readuntil(b"\r\n")).strip())
            await reader.readuntil(b"\r\n\r\n")
            if lines[-1] != OK:
                break
            await reader.readexactly(2)
        return lines


def _request(head_bytes: int, *, method: bytes = b"GET", more: bytes = b"") -> bytes:
    start, end = method + b" / HTTP/1.1\r\n" + more + b"X-Long: ", b"\r\n\r\n"
    return start + b"a" * (head_bytes - len(start) - len(end)) + end


async def test_a_head_is_bounded_in_bytes() -> None:
    assert await _statuses(_request(LIMIT)) == [OK]
    assert await _statuses(_request(LIMIT + 1)) == [REFUSED]


async def test_a_head_that_arrives_byte_by_byte_has_the_same_limit() -> None:
    for size, status in ((LIMIT, OK), (LIMIT + 1, REFUSED)):
        request = _request(size)
        assert await _statuses(*(request[at : at + 1] for at in range(len(request)))) == [status]


async def test_a_head_is_bounded_in_lines() -> None:
    for lines, status in ((LINES, OK), (LINES + 1, REFUSED)):
        assert await _statuses(b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * lines + b"\r\n") == [status]


async def test_a_long_path_is_refused() -> None:
    assert await _statuses(b"GET /" + b"a" * LIMIT) == [REFUSED]


@pytest.mark.parametrize("more", [b"Content-Length: 3000000\r\n", b"Transfer-Encoding: chunked\r\n"])
async def test_a_large_head_and_a_large_body_in_one_read_are_accepted(more: bytes) -> None:
    body = b"b" * 3_000_000
    if b"chunked" in more:
        body = b"".join(b"%x\r\n%b\r\n" % (100_000, body[at : at + 100_000]) for at in range(0, len(body), 100_000))
        body += b"0\r\n\r\n"
    application = Application()
    request = _request(LIMIT, method=b"POST", more=more) + body
    assert await _statuses(request, application=application) == [OK]
    assert application.body_bytes == 3_000_000


async def test_the_limit_applies_to_each_request_of_a_connection() -> None:
    requests = [_request(LIMIT)] * 3
    assert await _statuses(b"".join(requests), count=3) == [OK] * 3


@pytest.mark.parametrize("trailers", [b"a: b\r\n" * (LINES + 2), b"X-Long: " + b"a" * LIMIT], ids=["many", "long"])
async def test_trailers_are_bounded(trailers: bytes) -> None:
    start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n"
    assert await _statuses(start, trailers, b"\r\n\r\n") == [REFUSED]


async def test_a_trailer_is_never_a_header_of_the_request() -> None:
    start = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n"
    application = Application()
    assert await _statuses(start + b"Authorization: Bearer forged\r\n\r\n", application=application) == [OK]
    assert application.headers == [[(b"transfer-encoding", b"chunked")]]


async def test_a_refusal_is_a_problem_document_and_the_last_response() -> None:
    async with _connected(Application()) as (reader, _, writer):
        writer.write(_request(LIMIT + 1))
        answer = await reader.read()
    assert b'"code":"head_too_large"' in answer
    assert b"content-type: application/problem+json\r\n" in answer
    assert b"cache-control: no-store\r\n" in answer
    assert b"connection: close\r\n" in answer


async def test_a_request_that_is_not_http_gets_a_problem_document() -> None:
    async with _connected(Application()) as (reader, _, writer):
        writer.write(b"nonsense\r\n\r\n")
        assert b'"code":"invalid_request"' in await reader.read()


async def test_too_many_requests_sent_ahead_close_the_connection() -> None:
    async with _connected(Application()) as (reader, protocol, _):
        protocol.data_received(b"GET / HTTP/1.1\r\n\r\n" * (heads.PIPELINED_MAX + 2))
        assert protocol.transport.is_closing()
        assert b"431" not in await reader.read()


async def test_what_a_connection_stores_of_an_unfinished_head_is_bounded() -> None:
    """Counted in bytes: without the limit, each of these connections would store a mebibyte and more."""
    connections, data = 20, b"a: b\r\n" * 170_000
    async with contextlib.AsyncExitStack() as stack:
        protocols = [(await stack.enter_async_context(_connected(Application())))[1] for _ in range(connections)]
        tracemalloc.start()
        try:
            for protocol in protocols:
                protocol.data_received(b"GET / HTTP/1.1\r\nX-Long: " + b"a" * (LIMIT - 100))
            held, _ = tracemalloc.get_traced_memory()
            tracemalloc.reset_peak()
            for protocol in protocols:
                protocol.data_received(data)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < connections * 2 * LIMIT
        assert peak < connections * 2 * LIMIT
        assert all(protocol.transport.is_closing() for protocol in protocols)
