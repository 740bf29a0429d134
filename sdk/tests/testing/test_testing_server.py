"""Serve an app inside a test: no connection stays open after the test."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpuaas_sdk.testing import serving

ANSWER = bytes(64 << 20)
"""More than the kernel buffers for a client that does not read."""


async def _answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": ANSWER})


async def test_a_connection_whose_client_does_not_read_is_aborted_at_the_end() -> None:
    """An open connection would raise a resource warning in the middle of another test."""
    async with serving(_answer) as address:
        reader, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port)
        writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        await reader.readexactly(1)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await reader.readexactly(len(ANSWER))
    writer.close()
