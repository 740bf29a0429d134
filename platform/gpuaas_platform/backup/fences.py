"""Make the platform safe after a restore: refuse what was issued before it, because the database does not have all of
it. Called in the transaction that fills the database."""

from gpuaas_contract.event_types import PlatformRestored

from gpuaas_platform.access.machines import revoke
from gpuaas_platform.artifacts import deliveries
from gpuaas_platform.backup import manifest, tables
from gpuaas_platform.call import system_origin
from gpuaas_platform.identity import service as identity
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.kit import clock
from gpuaas_platform.nodes import enrolment
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.operations import fence
from gpuaas_platform.record import restores

_COUNTED = ("audit", "events")
"""The tables whose rows have a cursor that followers continue from."""
_CURSORS_SKIPPED = 10_000_000_000
"""More events and audit rows than a platform writes between a backup and its restore."""


async def apply(target: tables.Tables, header: manifest.Header, now: clock.Clock) -> PlatformRestored:
    tx, origin, reason = (
        target.tx,
        system_origin(now()),
        f"restored from a backup of {header.cut_at:%Y-%m-%d %H:%M} UTC",
    )
    lost_after = await restores.newest_cursor(tx)
    for table in _COUNTED:
        await target.set_sequence(table, header.sequences.get(table, 0) + _CURSORS_SKIPPED)
    sessions = await identity.end_all_sessions(tx)
    await enrolment.end_tokens(tx)
    await deliveries.end_all(tx)
    await posix.skip_after_restore(tx)
    restored = PlatformRestored(
        cut_at=header.cut_at,
        made_by=header.release,
        operations=await fence.raise_epochs(tx),
        grants=await revoke.end_all(tx, origin, reason),
        sessions=sessions,
        nodes_cordoned=await nodes.cordon_unallocated(tx, origin, f"{reason}: check that it is empty"),
    )
    lost_to = header.sequences.get("events", 0) + _CURSORS_SKIPPED
    await restores.note(tx, origin, restored, lost_after, lost_to)
    return restored
