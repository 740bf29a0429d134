"""A client of event streams that hides nothing: what came, byte for byte, and how the connection ended."""

import asyncio
import contextlib
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuaas_contract import events

SILENCE_S_MAX = 20.0
"""A stream sends a block more often than that, or it hangs."""


@dataclass(frozen=True)
class Block:
    """One block of a stream."""

    id: str
    event: str
    data: str


class EventStream:
    """An answer to a GET, of which the head is read and the body is not."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader, end: asyncio.StreamWriter):
        self.status, self.headers = status, headers
        self._reader, self._end = reader, end
        self._text = b""
        self.ended_cleanly = False
        """The server sent the end of the stream; a connection that just broke does not."""

    @classmethod
    async def open(
        cls,
        server_url: str,
        project_id: str,
        token: str,
        *,
        path: str = events.EVENT_STREAM.path,
        after: int = 0,
        query: str = "",
        **headers: str,
    ) -> "EventStream":
        """Headers are named as in Python: `last_event_id="7"`."""
        address = urlsplit(server_url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        lines = [f"GET {path.format(project_id=project_id)}?after={after}{query} HTTP/1.1", f"Host: {address.netloc}"]
        lines += [f"Authorization: Bearer {token}"] if token else []
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except BaseException:
            writer.transport.abort()
            raise
        named = dict(line.split(": ", 1) for line in head[1:] if line)
        return cls(int(head[0].split()[1]), {name.lower(): value for name, value in named.items()}, reader, writer)

    async def next(self) -> Block | None:
        """The next block with an event; None when the stream is over."""
        while True:
            block, separator, rest = self._text.partition(b"\n\n")
            if not separator:
                piece = await self._piece()
                if not piece:
                    return None
                self._text += piece
                continue
            self._text = rest
            fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
            if "event" in fields:
                return Block(fields["id"], fields["event"], fields["data"])

    async def next_event(self) -> Block | None:
        """The next block that is no bookmark."""
        block = await self.next()
        while block is not None and block.event == "bookmark":
            block = await self.next()
        return block

    async def body(self) -> bytes:
        """Of a refusal, which has an end."""
        return await self._reader.readexactly(int(self.headers["content-length"]))

    def close(self) -> None:
        self._end.transport.abort()

    async def _piece(self) -> bytes:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            async with asyncio.timeout(SILENCE_S_MAX):
                size = int(await self._reader.readuntil(b"\r\n"), 16)
                piece = await self._reader.readexactly(size + 2)
            self.ended_cleanly = size == 0
            return piece[:-2]
        return b""
