"""A transport that opens a new connection for the next command when the present one has expired or failed."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

from gpuaas_sdk.machine.errors import MachineUnreachable
from gpuaas_sdk.machine.transport import Command, Completed, Transport


@dataclass
class Connection:
    """One connection to a machine, and the time from which it must not be used for another command."""

    transport: Transport
    close: Callable[[], Awaitable[None]]
    renew_at: float
    clock: Callable[[], float] = time.monotonic
    broken: bool = False
    retired: bool = False
    users: int = 0

    def usable(self) -> bool:
        """Return whether a new command may use this connection."""
        return not self.broken and self.clock() < self.renew_at

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Transport]:
        """Give the transport to one command. After `retire`, the last command that uses it closes the connection."""
        self.users += 1
        try:
            yield self.transport
        except MachineUnreachable:
            self.broken = True
            raise
        finally:
            self.users -= 1
            await self._close_if_unused()

    async def retire(self) -> None:
        """Close the connection as soon as no command uses it."""
        self.retired = True
        await self._close_if_unused()

    async def _close_if_unused(self) -> None:
        if self.retired and not self.users:
            await self.close()


class RenewingTransport:
    """`Transport` that sends each command over the newest usable connection."""

    def __init__(self, open_connection: Callable[[], Awaitable[Connection]], address: str) -> None:
        self.hostname = address
        self.address = address
        self._open_connection = open_connection
        self._connection: Connection | None = None
        self._open_lock = asyncio.Lock()

    async def execute(self, command: Command) -> Completed:
        """Run the command over the newest connection."""
        connection = await self.ensure_open()
        async with connection.use() as transport:
            return await transport.execute(command)

    async def stream(self, command: Command) -> AsyncGenerator[str]:
        """Yield the output lines of the command. It uses one connection to its end, even if a newer one is opened."""
        connection = await self.ensure_open()
        async with connection.use() as transport, aclosing(transport.stream(command)) as lines:
            async for line in lines:
                yield line

    async def ensure_open(self) -> Connection:
        """Return a usable connection, opened now if necessary."""
        async with self._open_lock:
            old = self._connection
            if old is not None and old.usable():
                return old
            new = self._connection = await self._open_connection()
            self.hostname, self.address = new.transport.hostname, new.transport.address
        if old is not None:
            await old.retire()
        return new

    async def close(self) -> None:
        """Close the newest connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
