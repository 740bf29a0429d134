"""Answers on a real socket follow HTTP, in one piece where that is possible."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import cycle, exchange, http, listener

DEADLINE_S = 60


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
    async with asyncio.timeout(DEADLINE_S), _connected(config) as (client, _):
        yield client


@contextlib.asynccontextmanager
async def _connected(config: uvicorn.Config) -> AsyncIterator[tuple[Connection, listener.Protocol]]:
    """Both ends of a connection to a listener without uvicorn's own loop around it."""
    config.load()
    state = uvicorn.Server(config).server_state
    accepted: asyncio.Future[listener.Protocol] = asyncio.get_running_loop().create_future()

    def accept() -> listener.Protocol:
        accepted.set_result(listener.Protocol(config=config, server_state=state, app_state={}))
        return accepted.result()

    listening = await asyncio.get_running_loop().create_server(accept, "127.0.0.1", 0)
    async with listening:
        reader, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
        yield Connection(reader, writer), await accepted
        writer.close()


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


async def test_head_returns_the_length_of_the_body_and_no_body(connection: Connection) -> None:
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


async def test_an_unread_body_does_not_confuse_the_next_request(connection: Connection) -> None:
    refused = b"POST /api/v1/orgs HTTP/1.1\r\nContent-Length: 14\r\n\r\n" + b'{"name": "me"}'
    [first, second] = await connection.answers(refused + b"GET /livez HTTP/1.1\r\n\r\n", 2)
    assert (first[0], second[2]) == (b"HTTP/1.1 401 Unauthorized", b"ok\n")


async def test_a_body_that_never_comes_is_not_waited_for_without_end(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "BODY_S_MAX", 0.05)
    for begun in (b"", b'{"name": '):
        asked = b"POST /api/v1/auth/login HTTP/1.1\r\nContent-Length: 50\r\n\r\n" + begun
        [(status, _, body)] = await connection.answers(asked)
        assert (status, b"The body was not complete" in body) == (b"HTTP/1.1 400 Bad Request", True)
        connection.writer.write(b" " * (50 - len(begun)))


@pytest.mark.parametrize("forged", [b"one\r\nx-forged: two", b"one\nx-forged: two", b"one\r\n"])
async def test_a_header_with_a_line_break_in_it_never_reaches_the_wire(forged: bytes) -> None:
    """No header of the platform has one. If one ever does, the caller gets a 500 instead of a forged answer."""

    async def application(scope: exchange.Message, _: exchange.Receive, send: exchange.Send) -> None:
        headers = [(b"content-length", b"0"), (b"x-name", forged)]
        taken = cycle.take(scope)
        assert taken is not None
        assert not taken.send_whole(200, headers, b"")
        await send({"type": "http.response.start", "status": 200, "headers": headers})

    config = uvicorn.Config(application, log_config=None, lifespan="off", http=listener.Protocol)
    async with asyncio.timeout(DEADLINE_S), _connected(config) as (connection, _):
        connection.writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"one" not in await connection.reader.read()


ASK = b"GET / HTTP/1.1\r\n\r\n"


async def _ok(_: exchange.Message, __: exchange.Receive, send: exchange.Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def _config(application: Any, keep_alive_s: int) -> uvicorn.Config:
    return uvicorn.Config(
        application, log_config=None, lifespan="off", http=listener.Protocol, timeout_keep_alive=keep_alive_s
    )


def _ring_at_once(protocol: listener.Protocol) -> None:
    """Run the timers as if the longest idle time of a connection were over."""
    protocol.timeout_keep_alive = 0
    protocol.timeout_keep_alive_handler()


async def test_a_connection_is_closed_when_nothing_more_is_asked() -> None:
    async with asyncio.timeout(DEADLINE_S), _connected(_config(_ok, keep_alive_s=3600)) as (connection, protocol):
        assert [body for _, _, body in await connection.answers(ASK)] == [b"ok"]
        _ring_at_once(protocol)
        assert await connection.reader.read() == b""


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nX-Slow: "])
async def test_a_connection_on_which_no_whole_request_comes_is_closed(begun: bytes) -> None:
    async with asyncio.timeout(DEADLINE_S), _connected(_config(_ok, keep_alive_s=3600)) as (connection, protocol):
        protocol.data_received(begun)
        _ring_at_once(protocol)
        assert await connection.reader.read() == b""


async def test_a_timer_that_rings_soon_after_an_answer_leaves_the_connection_open_and_rings_again() -> None:
    async with asyncio.timeout(DEADLINE_S), _connected(_config(_ok, keep_alive_s=3600)) as (connection, protocol):
        await connection.answers(ASK)
        first = protocol.timeout_keep_alive_task
        await connection.answers(ASK)
        assert protocol.timeout_keep_alive_task is first
        protocol.timeout_keep_alive_handler()
        assert protocol.timeout_keep_alive_task is not None
        assert [body for _, _, body in await connection.answers(ASK)] == [b"ok"]


async def test_a_timer_that_rings_while_a_request_is_answered_does_not_end_it() -> None:
    async def application(scope: exchange.Message, receive: exchange.Receive, send: exchange.Send) -> None:
        _ring_at_once(protocol)
        await _ok(scope, receive, send)

    config = _config(application, keep_alive_s=3600)
    async with asyncio.timeout(DEADLINE_S), _connected(config) as (connection, protocol):
        assert [body for _, _, body in await connection.answers(ASK)] == [b"ok"]


async def test_no_request_starts_the_timer_again_after_it_rang_because_it_would_keep_the_request_in_memory() -> None:
    timers: list[asyncio.TimerHandle | None] = []

    async def application(scope: exchange.Message, receive: exchange.Receive, send: exchange.Send) -> None:
        protocol.timeout_keep_alive_handler()
        timers.append(protocol.timeout_keep_alive_task)
        await _ok(scope, receive, send)

    config = _config(application, keep_alive_s=3600)
    async with asyncio.timeout(DEADLINE_S), _connected(config) as (connection, protocol):
        await connection.answers(ASK)
        assert timers == [protocol.timeout_keep_alive_task]
        assert timers != [None]


async def test_a_connection_that_is_gone_leaves_no_timer_behind() -> None:
    async with asyncio.timeout(DEADLINE_S), _connected(_config(_ok, keep_alive_s=3600)) as (connection, protocol):
        await connection.answers(ASK)
        timer = protocol.timeout_keep_alive_task
        assert timer is not None
        protocol.shutdown()
        assert await connection.reader.read() == b""
        assert timer.cancelled()


def test_the_server_keeps_a_connection_from_one_beat_of_a_node_to_the_next(site: Site) -> None:
    made = server._server(http.application(site, server.DOMAINS), site, server.Listen("127.0.0.1", 0, encrypted=False))
    assert made.config.timeout_keep_alive > site.settings.heartbeat_interval_s
