"""Serve the gauges of a controller over HTTP, for Prometheus: `GET /metrics`. `command` starts it with `--metrics`.

It has no TLS and no login, so it is off by default, and its address should be one that only the monitoring reaches."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import NamedTuple

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from gpuaas_sdk.controller.gauges import Gauges

REQUEST_S = 5.0
"""A connection that has not sent its request after this time is closed."""
REQUEST_BYTES_MAX = 8192


class Address(NamedTuple):
    host: str
    port: int


def parse(text: str) -> Address:
    """Return the address of `HOST:PORT`, or `[HOST]:PORT`. Raises ValueError with what is wrong."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"{text!r} is no address such as 127.0.0.1:9464")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


@contextlib.asynccontextmanager
async def serve(gauges: Gauges, address: Address) -> AsyncIterator[Address]:
    """Serve the gauges until the block is left. Yields the address, with the port that was chosen for port 0."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(REQUEST_S):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request, gauges))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, address.host, address.port, limit=REQUEST_BYTES_MAX)
    async with server:
        yield Address(address.host, server.sockets[0].getsockname()[1])


def _response(request: bytes, gauges: Gauges) -> bytes:
    method, path = (*request.split(b"\r\n", 1)[0].split(b" "), b"", b"")[:2]
    if path.split(b"?", 1)[0] != b"/metrics":
        return _page("404 Not Found", "The only page is /metrics.\n")
    if method != b"GET":
        return _page("405 Method Not Allowed", "Read it with GET.\n", "Allow: GET\r\n")
    return _page("200 OK", gauges.text())


def _page(status: str, text: str, more: str = "") -> bytes:
    body = text.encode()
    types = f"Content-Type: {CONTENT_TYPE_PLAIN_0_0_4}\r\nContent-Length: {len(body)}\r\n"
    return f"HTTP/1.1 {status}\r\n{types}Connection: close\r\n{more}\r\n".encode() + body
