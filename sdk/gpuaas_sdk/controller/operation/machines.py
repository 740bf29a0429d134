"""The machines of one operation: a key pair in memory, short-lived certificates, one shared connection per allocation.

`Operation.machine` returns them. Every command is recorded, and certificates are renewed between commands."""

import asyncio
import datetime
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

import asyncssh
import msgspec
import structlog
from gpuaas_contract.access import MachineAccess

from gpuaas_sdk.machine import Machine, MachineTarget, MachineUnreachable, RemoteWork
from gpuaas_sdk.machine.record import AddLine, RecordingTransport
from gpuaas_sdk.machine.renewal import Connection, RenewingTransport

log = structlog.get_logger()

CERTIFICATE_TTL_S = 600
RENEW_SHARE = 0.8
"""A certificate is replaced before the next command after this part of its lifetime."""

CLOSE_S = 5.0
"""Time limit for closing a connection: an unreachable machine must not delay the end of an operation."""

Connect = Callable[[MachineTarget], AbstractAsyncContextManager[Machine]]
Grant = Callable[[str, str], Awaitable[MachineAccess]]
"""Takes an allocation id and a public key; returns the address of the machine and a certificate for the key."""


class Machines:
    """Open the machines of one operation on demand and close them together."""

    def __init__(
        self,
        grant: Grant,
        connect: Connect,
        add_line: AddLine,
        *,
        work: str = "",
        is_resumed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`work` names the commands on the machines. `is_resumed`: commands of an earlier process may still run."""
        self._grant = grant
        self._connect = connect
        self._add_line = add_line
        self._clock = clock
        self._key = asyncssh.generate_private_key("ssh-ed25519")
        self._by_allocation: dict[str, RenewingTransport] = {}
        self._work = work
        self._is_resumed = is_resumed
        self._works: dict[str, RemoteWork] = {}
        self._unused: dict[str, tuple[MachineAccess, float]] = {}
        """Access that was granted for a machine which was then unreachable, by allocation."""

    async def machine(self, allocation_id: str, address: str) -> Machine:
        """Return the machine of an allocation. Two members on one machine share its connection."""
        if allocation_id not in self._by_allocation:
            self._by_allocation[allocation_id] = RenewingTransport(lambda: self._open(allocation_id, address), address)
        transport = self._by_allocation[allocation_id]
        await transport.ensure_open()
        return Machine(transport)

    async def address(self, allocation_id: str) -> str:
        """Return the address of an allocation's machine. The access that this needs is kept for the connection."""
        access, renew_at = await self._granted(allocation_id)
        self._unused[allocation_id] = (access, renew_at)
        return access.host

    async def close(self) -> None:
        """Close every connection. If one cannot be closed in time, log it and continue."""
        transports, self._by_allocation = self._by_allocation, {}
        for result in await asyncio.gather(*map(_close, transports.values()), return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("machine.close_failed", error=str(result) or type(result).__name__)

    async def _open(self, allocation_id: str, address: str) -> Connection:
        granted = await self._granted(allocation_id)
        access, renew_at = granted
        connection = AsyncExitStack()
        try:
            machine = await connection.enter_async_context(self._connect(self._target(allocation_id, access, address)))
        except MachineUnreachable as error:
            # The certificate stays good for the next attempt: a machine that is off must not cost one every time.
            if not isinstance(error.__cause__, asyncssh.PermissionDenied):
                self._unused[allocation_id] = granted
            raise
        recording = RecordingTransport(machine.transport, self._add_line)
        return Connection(transport=recording, close=connection.aclose, renew_at=renew_at, clock=self._clock)

    def _target(self, allocation_id: str, access: MachineAccess, address: str) -> MachineTarget:
        if self._work and allocation_id not in self._works:
            self._works[allocation_id] = RemoteWork(self._work, may_run_already=self._is_resumed)
        target = target_of(access, address, self._key)
        return msgspec.structs.replace(target, work=self._works.get(allocation_id))

    async def _granted(self, allocation_id: str) -> tuple[MachineAccess, float]:
        """Return access to the machine and the time until which its certificate is used: one that no connection has
        used yet, or a new one."""
        unused = self._unused.pop(allocation_id, None)
        if unused is not None and self._clock() < unused[1]:
            return unused
        access = await self._grant(allocation_id, self._key.export_public_key().decode().strip())
        life_s = (access.expires_at - datetime.datetime.now(datetime.UTC)).total_seconds()
        # At most the requested lifetime: if the clock here is behind, an expired certificate must not stay in use.
        return access, self._clock() + RENEW_SHARE * min(max(life_s, 0.0), CERTIFICATE_TTL_S)


async def _close(transport: RenewingTransport) -> None:
    async with asyncio.timeout(CLOSE_S):
        await transport.close()


def target_of(
    access: MachineAccess, address: str, key: asyncssh.SSHKey, *, is_privileged: bool = True
) -> MachineTarget:
    """Return the address, user and keys for a connection with this certificate."""
    return MachineTarget(
        host=access.host,
        port=access.port,
        user=access.user,
        host_public_key=access.host_public_key,
        private_key=key.export_private_key("openssh").decode(),
        certificate=access.certificate,
        address=address,
        is_privileged=is_privileged,
    )
