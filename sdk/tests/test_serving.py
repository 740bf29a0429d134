"""Serving an app inside a test: what the test leaves behind is gone when it ends."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import pytest
from gpuaas_sdk.testing import serving

ANSWER = bytes(64 << 20)
"""More than the kernel takes off a server whose client does not read."""


async def _answer(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": ANSWER})


async def test_an_answer_that_nobody_takes_is_cut_off_at_the_end() -> None:
    """Else its connection would lie open until the garbage collector complains, in the middle of another test."""
    async with serving(_answer) as address:
        reader, writer = await asyncio.open_connection(urlsplit(address).hostname, urlsplit(address).port)
        writer.write(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n")
        await reader.readexactly(1)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
        await reader.readexactly(len(ANSWER))
    writer.close()
