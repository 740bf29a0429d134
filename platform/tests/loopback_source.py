"""An HTTP server on loopback that sends exactly what a test wants, byte for byte, well-behaved or not."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

Reply = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class LoopbackSource:
    port: int
    scheme: str = "http"
    replies: dict[str, Reply] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    """Path and headers of every request, in order."""

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"{self.scheme}://{host}:{self.port}{path}"

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            path = head[0].split(" ")[1]
            headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
            self.asked.append((path, headers))
            await self.replies[path](writer)


@contextlib.asynccontextmanager
async def loopback_source(encrypted_by: ssl.SSLContext | None = None) -> AsyncIterator[LoopbackSource]:
    source = LoopbackSource(0, "https" if encrypted_by else "http")
    server = await asyncio.start_server(source.answer, "127.0.0.1", 0, ssl=encrypted_by)
    source.port = server.sockets[0].getsockname()[1]
    async with server:
        yield source


def sends(content: bytes, *, media_type: str = "application/octet-stream", length: int | None = None) -> Reply:
    """`length` is what the header claims, when that is not the truth."""
    size = len(content) if length is None else length

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {size}\r\n\r\n".encode())
        writer.write(content)
        await writer.drain()

    return reply


def redirects(location: str) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 307 Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    return reply


def refuses(status: int, *headers: str) -> Reply:
    async def reply(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status} No", *headers, "Content-Length: 0", "", ""]
        writer.write("\r\n".join(lines).encode())
        await writer.drain()

    return reply


def never_ends(hung_up: asyncio.Event) -> Reply:
    """Sends until the other side closes, then sets the event."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        try:
            while True:
                writer.write(b"400\r\n" + bytes(1024) + b"\r\n")
                await writer.drain()
        except ConnectionError:
            hung_up.set()

    return reply


def goes_silent(content: bytes, until: asyncio.Event) -> Reply:
    """Begins well and then sends nothing more."""

    async def reply(writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(content) + 1}\r\n\r\n".encode() + content)
        await writer.drain()
        await until.wait()

    return reply
