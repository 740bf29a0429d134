"""Record that the platform was restored from a backup. `backup.fences` calls it in the transaction of the restore."""

import datetime

from gpuaas_contract.event_types import PlatformRestored

from gpuaas_platform.call import PLATFORM, Origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.record import service, store


async def newest_cursor(reader: db.Reader) -> int:
    """Return the newest cursor that a follower can have received before the backup was made."""
    return await store.newest_cursor_anywhere(reader)


async def note(tx: db.Tx, origin: Origin, restored: PlatformRestored, lost_after: int, lost_to: int) -> None:
    """Write the audit row and the event. From now on, a follower whose cursor is between the two gets 410."""
    cut_at: datetime.datetime = restored.cut_at
    await store.add_restore(tx, clock.micros(origin.now), clock.micros(cut_at), lost_after, lost_to)
    details = {"cut_at": cut_at.isoformat(), "made_by": restored.made_by}
    await service.audit(tx, origin, "record.platform.restore", "platform", details=details)
    await service.emit(tx, origin, "record.platform.restored", restored, PLATFORM)
