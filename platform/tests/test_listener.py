"""Answers on a real socket: in one piece where nothing is special, and as HTTP wants them everywhere."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import uvicorn
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import exchange, http, listener

DEADLINE_S = 20


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def answers(self, request: bytes, count: int = 1) -> list[tuple[bytes, dict[bytes, bytes], bytes]]:
        """Send it all at once, then read as many answers: status line, headers, body."""
        self.writer.write(request)
        return [await self._answer(no_body=request.startswith(b"HEAD")) for _ in range(count)]

    async def _answer(self, *, no_body: bool) -> tuple[bytes, dict[bytes, bytes], bytes]:
        head = await self.reader.readuntil(b"\r\n\r\n")
        status, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines)
        body = b"" if no_body else await self.reader.readexactly(int(headers[b"content-length"]))
        return status, headers, body


@pytest.fixture
async def connection(site: Site) -> AsyncIterator[Connection]:
    config = uvicorn.Config(
        http.application(site, server.DOMAINS), log_config=None, lifespan="off", http=listener.Protocol
    )
    async with asyncio.timeout(DEADLINE_S), _served(config) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        yield Connection(reader, writer)
        writer.close()


@contextlib.asynccontextmanager
async def _served(config: uvicorn.Config) -> AsyncIterator[int]:
    """One listener without uvicorn's own loop around it."""
    config.load()
    state = uvicorn.Server(config).server_state
    running = asyncio.get_running_loop()
    listening = await running.create_server(
        lambda: listener.Protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def test_an_answer_has_its_headers_and_its_body(connection: Connection) -> None:
    [(status, headers, body)] = await connection.answers(b"GET /livez HTTP/1.1\r\nX-Correlation-ID: mine\r\n\r\n")
    assert (status, body) == (b"HTTP/1.1 200 OK", b"ok\n")
    assert headers[b"x-correlation-id"] == b"mine"
    assert headers[b"content-type"] == b"text/plain; charset=utf-8"
    assert b"transfer-encoding" not in headers


async def test_requests_sent_at_once_are_answered_in_their_order(connection: Connection) -> None:
    paths = [b"/livez", b"/nowhere", b"/readyz", b"/version"]
    answers = await connection.answers(b"".join(b"GET %b HTTP/1.1\r\n\r\n" % path for path in paths), len(paths))
    statuses = [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.1 200 OK", b"HTTP/1.1 200 OK"]
    assert [answer[0] for answer in answers] == statuses
    assert b'"gpuaas-platform"' in answers[3][2]


async def test_head_says_how_long_the_body_would_be_and_sends_none(connection: Connection) -> None:
    [(_, headers, _)] = await connection.answers(b"HEAD /livez HTTP/1.1\r\n\r\n")
    assert headers[b"content-length"] == b"3"
    [(status, _, body)] = await connection.answers(b"GET /livez HTTP/1.1\r\n\r\n")
    assert (status, body) == (b"HTTP/1.1 200 OK", b"ok\n")


@pytest.mark.parametrize(
    "request_line", [b"GET /livez HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET /livez HTTP/1.0\r\n\r\n"]
)
async def test_a_connection_that_is_to_be_closed_is_closed(connection: Connection, request_line: bytes) -> None:
    [(_, headers, body)] = await connection.answers(request_line)
    assert (headers[b"connection"], body) == (b"close", b"ok\n")
    assert await connection.reader.read() == b""


async def test_a_body_nobody_reads_does_not_confuse_the_next_request(connection: Connection) -> None:
    refused = b"POST /api/v1/orgs HTTP/1.1\r\nContent-Length: 14\r\n\r\n" + b'{"name": "me"}'
    [first, second] = await connection.answers(refused + b"GET /livez HTTP/1.1\r\n\r\n", 2)
    assert (first[0], second[2]) == (b"HTTP/1.1 401 Unauthorized", b"ok\n")


async def test_a_header_with_a_line_break_in_it_never_reaches_the_wire() -> None:
    """No header of ours has one; should that ever change, the caller gets a 500 instead of a forged answer."""

    async def application(scope: exchange.Message, _: exchange.Receive, send: exchange.Send) -> None:
        headers = [(b"x-name", b"one\r\nx-forged: two"), (b"content-length", b"0")]
        send_whole = listener.take_send_whole(scope)
        assert send_whole is not None
        assert not send_whole(200, headers, b"")
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    config = uvicorn.Config(application, log_config=None, lifespan="off", http=listener.Protocol)
    async with asyncio.timeout(DEADLINE_S), _served(config) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"x-forged" not in await reader.read()
        writer.close()


def test_the_server_keeps_a_connection_from_one_beat_of_a_node_to_the_next(site: Site) -> None:
    made = server._server(http.application(site, server.DOMAINS), site, server.Listen("127.0.0.1", 0, encrypted=False))
    assert made.config.timeout_keep_alive > site.settings.heartbeat_interval_s
