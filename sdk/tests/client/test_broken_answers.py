"""Answers that a broken proxy or server sends: the client reports them as no answer, which callers expect."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from gpuaas_contract.errors import ApiError
from gpuaas_contract.identity import ORG_LIST
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from gpuaas_sdk.outcomes import NoAnswer


@contextlib.asynccontextmanager
async def _answering(answer: bytes) -> AsyncIterator[Client]:
    """A client of a server that sends this answer to everything, and closes the connection."""

    async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(OSError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answered, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, Client(f"http://127.0.0.1:{port}", BearerToken("token")) as client:
        yield client


def _whole(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


ANSWERS = {
    "no UTF-8": _whole("200 OK", b'{"items": ["\xff"]}'),
    "no UTF-8 in an error": _whole("409 Conflict", b'{"code": "\xff"}'),
    "deep": _whole("200 OK", b'{"items": ' + b"[" * 100_000),
    "deep unknown": _whole("200 OK", b'{"unknown": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "deep error": _whole("409 Conflict", b'{"details": ' + b'{"a":' * 100_000),
    "cut": _whole("200 OK", b'{"items": []}')[:-5],
    "broken compression": _whole("200 OK", b"no gzip", "Content-Encoding: gzip"),
    "broken compression of an error": _whole("409 Conflict", b"no gzip", "Content-Encoding: gzip"),
    "redirect": _whole("302 Found", b"", "Location: http://127.0.0.1:1/"),
    "page": _whole("200 OK", b"<html>"),
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_broken_answer_is_an_error_that_callers_expect(name: str) -> None:
    async with _answering(ANSWERS[name]) as client:
        with pytest.raises((NoAnswer, ApiError)):
            await client.call(ORG_LIST, timeout_s=1)
