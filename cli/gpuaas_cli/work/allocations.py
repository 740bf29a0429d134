"""Wait until nothing moves an allocation any more."""

import asyncio
import time

from gpuaas_contract.capacity import ALLOCATION_GET, Allocation

from gpuaas_cli import failures
from gpuaas_cli.client.session import Session

POLL_S = 0.5
WAIT_S = 180.0
SETTLED = frozenset({"active", "failed", "released", "release_failed"})


async def settled(session: Session, allocation_id: str, *, timeout_s: float = WAIT_S) -> Allocation:
    ends_at = time.monotonic() + timeout_s
    while True:
        allocation = await session.call(ALLOCATION_GET, allocation_id=allocation_id)
        if allocation.status in SETTLED:
            return allocation
        if time.monotonic() >= ends_at:
            raise failures.Failure(
                f"{allocation_id} is still {allocation.status} after {timeout_s:g} s",
                fix=f"gpuaas get allocation {allocation_id}",
                code="timeout",
                exit_code=failures.SERVER,
            )
        await asyncio.sleep(POLL_S)
