"""The machines of one instance as its steward sees them: unprivileged connections, kept open from look to look.

`Reconciliation.machine` returns them. They end with the stewardship."""

import asyncio
import datetime
import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import asyncssh
import structlog
from gpuaas_contract.access import MachineAccess

from gpuaas_sdk.controller.operation.machines import CLOSE_S, RENEW_SHARE, Connect, target_of
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.machine.renewal import Connection, RenewingTransport

log = structlog.get_logger()

Grant = Callable[[str, str], Awaitable[MachineAccess]]
"""Takes an allocation id and a public key; returns the address of the machine and a certificate for the key."""


class ObserverMachines:
    """Open the machines of one instance on demand. A certificate is used again until it expires soon, because a machine
    that does not answer is tried at every look."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._key: asyncssh.SSHKey | None = None
        self._access: dict[str, tuple[MachineAccess, datetime.datetime]] = {}
        self._by_allocation: dict[str, RenewingTransport] = {}

    async def machine(self, allocation_id: str, address: str, grant: Grant) -> Machine:
        """Return the machine of an allocation, connected."""
        transport = self._by_allocation.get(allocation_id)
        if transport is None:
            transport = RenewingTransport(lambda: self._open(allocation_id, address, grant), address)
            self._by_allocation[allocation_id] = transport
        await transport.ensure_open()
        return Machine(transport)

    async def close(self) -> None:
        """Close every connection. If one cannot be closed in time, log it and continue."""
        transports, self._by_allocation, self._access = self._by_allocation, {}, {}
        for result in await asyncio.gather(*map(_close, transports.values()), return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("machine.close_failed", error=str(result) or type(result).__name__)

    async def _open(self, allocation_id: str, address: str, grant: Grant) -> Connection:
        self._key = self._key or asyncssh.generate_private_key("ssh-ed25519")
        access = await self._certificate(allocation_id, self._key, grant)
        connection = AsyncExitStack()
        target = target_of(access, address, self._key, is_privileged=False)
        machine = await connection.enter_async_context(self._connect(target))
        # An open connection outlives its certificate, so nothing has to be renewed while it works.
        return Connection(transport=machine.transport, close=connection.aclose, renew_at=math.inf)

    async def _certificate(self, allocation_id: str, key: asyncssh.SSHKey, grant: Grant) -> MachineAccess:
        known, now = self._access.get(allocation_id), datetime.datetime.now(datetime.UTC)
        if known is not None and known[1] > now:
            return known[0]
        access = await grant(allocation_id, key.export_public_key().decode().strip())
        self._access[allocation_id] = access, now + RENEW_SHARE * (access.expires_at - now)
        return access


async def _close(transport: RenewingTransport) -> None:
    async with asyncio.timeout(CLOSE_S):
        await transport.close()
