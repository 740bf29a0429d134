"""The one place that changes the status of an allocation and emits its event."""

import msgspec
from gpuaas_contract import lifecycles
from gpuaas_contract.capacity import Allocation
from gpuaas_contract.event_types import AllocationChanged
from gpuaas_contract.lifecycles import AllocationStatus

from gpuaas_platform.allocations import store
from gpuaas_platform.call import Origin
from gpuaas_platform.kit import db, structs
from gpuaas_platform.record import service as record


async def save(tx: db.Tx, origin: Origin, before: Allocation, after: Allocation) -> Allocation:
    """Save the allocation. Only a new status is an event."""
    lifecycles.check_move(before.allocation_id, lifecycles.ALLOCATION, before.status, after.status)
    saved = msgspec.structs.replace(after, updated_at=origin.now)
    await store.ALLOCATIONS.save(tx, saved)
    if after.status != before.status:
        await announce(tx, origin, saved, before.status)
    return saved


async def announce(tx: db.Tx, origin: Origin, allocation: Allocation, was: AllocationStatus | None) -> None:
    """Emit the event of an allocation that is new or has a new status."""
    payload, cause = structs.pick(AllocationChanged, allocation, was=was), allocation.correlation_id
    await record.emit(tx, origin, "capacity.allocation.changed", payload, allocation, correlation_id=cause)
