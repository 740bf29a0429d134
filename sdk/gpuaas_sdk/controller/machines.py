"""Machines of one operation: a key pair in memory, short certificates, one shared connection per allocation.

`operation` hands the machines out; each command goes over the present connection, so renewals stay unseen, and is
written down."""

import asyncio
import datetime
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass

import asyncssh
import structlog
from gpuaas_contract.access import MachineAccess

from gpuaas_sdk.controller.recording import RecordedMachine, WriteDown
from gpuaas_sdk.machine import Machine, MachineTarget, MachineUnreachable, Ran

log = structlog.get_logger()

CERTIFICATE_TTL_S = 600
RENEW_SHARE = 0.8
"""A certificate past this share of its life is replaced at the next command."""

CLOSE_S = 5.0
"""A machine that is gone must not hold up the end of an operation."""

Connect = Callable[[MachineTarget], AbstractAsyncContextManager[Machine]]
Grant = Callable[[str, str], Awaitable[MachineAccess]]
"""Allocation id and public key in, certificate out."""


class Machines:
    def __init__(
        self, grant: Grant, connect: Connect, write_down: WriteDown, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._grant = grant
        self._connect = connect
        self._write_down = write_down
        self._clock = clock
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._by_allocation: dict[str, OperationMachine] = {}

    async def machine(self, allocation_id: str, address: str) -> Machine:
        """Two members on one machine share its connection."""
        if allocation_id not in self._by_allocation:
            self._by_allocation[allocation_id] = OperationMachine(lambda: self._open(allocation_id, address), address)
        machine = self._by_allocation[allocation_id]
        await machine.ensure_open()
        return machine

    async def close(self) -> None:
        machines, self._by_allocation = self._by_allocation, {}
        for end in await asyncio.gather(*map(_close, machines.values()), return_exceptions=True):
            if isinstance(end, Exception):
                log.warning("a machine's connection did not close cleanly", why=str(end) or type(end).__name__)

    async def _open(self, allocation_id: str, address: str) -> "_Connection":
        access = await self._grant(allocation_id, self._key.export_public_key().decode().strip())
        life_s = (access.expires_at - datetime.datetime.now(datetime.UTC)).total_seconds()
        # Bounded by what was asked for, so a wrong clock on either side cannot keep a dead certificate.
        renew_at = self._clock() + RENEW_SHARE * min(max(life_s, 0.0), CERTIFICATE_TTL_S)
        context = self._connect(_target(access, address, self._key))
        machine = RecordedMachine(await context.__aenter__(), self._write_down)
        return _Connection(machine=machine, context=context, renew_at=renew_at, clock=self._clock)


class OperationMachine:
    """`Machine` over whatever connection is good at the moment."""

    def __init__(self, open_connection: "Callable[[], Awaitable[_Connection]]", address: str) -> None:
        self.hostname = address
        self.address = address
        self._open_connection = open_connection
        self._connection: _Connection | None = None
        self._opening = asyncio.Lock()

    async def run(
        self,
        *argv: str,
        input: str | bytes = b"",
        check: bool = True,
        as_user: str | None = None,
        timeout_s: float = 60,
    ) -> Ran:
        async with self._present() as machine:
            return await machine.run(*argv, input=input, check=check, as_user=as_user, timeout_s=timeout_s)

    async def script(self, text: str, *argv: str, check: bool = True, timeout_s: float = 300) -> Ran:
        async with self._present() as machine:
            return await machine.script(text, *argv, check=check, timeout_s=timeout_s)

    async def put(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> bool:
        async with self._present() as machine:
            return await machine.put(path, content, mode=mode, owner=owner)

    async def get(self, path: str) -> bytes | None:
        async with self._present() as machine:
            return await machine.get(path)

    async def follow(self, path: str, *, lines: int = 0) -> AsyncGenerator[str]:
        async with self._present() as machine, aclosing(machine.follow(path, lines=lines)) as following:
            async for line in following:
                yield line

    async def ensure_open(self) -> "_Connection":
        async with self._opening:
            old = self._connection
            if old is not None and old.good():
                return old
            self._connection = await self._open_connection()
            self.hostname, self.address = self._connection.machine.hostname, self._connection.machine.address
        if old is not None:
            await old.retire()
        return self._connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @asynccontextmanager
    async def _present(self) -> AsyncIterator[Machine]:
        connection = await self.ensure_open()
        async with connection.used() as machine:
            yield machine


@dataclass
class _Connection:
    machine: Machine
    context: AbstractAsyncContextManager[Machine]
    renew_at: float
    clock: Callable[[], float]
    broken: bool = False
    retired: bool = False
    users: int = 0

    def good(self) -> bool:
        return not self.broken and self.clock() < self.renew_at

    @asynccontextmanager
    async def used(self) -> AsyncIterator[Machine]:
        self.users += 1
        try:
            yield self.machine
        except MachineUnreachable:
            self.broken = True
            raise
        finally:
            self.users -= 1
            if self.retired and not self.users:
                await self.close()

    async def retire(self) -> None:
        """A command of another step may still run over it; the last user closes it."""
        self.retired = True
        if not self.users:
            await self.close()

    async def close(self) -> None:
        await self.context.__aexit__(None, None, None)


async def _close(machine: OperationMachine) -> None:
    async with asyncio.timeout(CLOSE_S):
        await machine.close()


def _target(access: MachineAccess, address: str, key: asyncssh.SSHKey) -> MachineTarget:
    return MachineTarget(
        host=access.host,
        port=access.port,
        user=access.user,
        host_public_key=access.host_public_key,
        private_key=key.export_private_key("openssh").decode(),
        certificate=access.certificate,
        address=address,
    )
