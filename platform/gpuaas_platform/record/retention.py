"""Delete old events. The highest deleted cursor of each record is stored, because positions of followers are compared
with it."""

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.record import store


async def _is_old(reader: db.Reader, before: int) -> bool:
    return bool(await store.oldest_events(reader, clock.moment(before), 1))


async def _forget(tx: db.Tx, before: int, limit: int) -> None:
    """Delete events, oldest first, up to the first one that is kept, so that the kept events have no gaps."""
    old = await store.oldest_events(tx, clock.moment(before), limit)
    if not old:
        return
    for scope, cursor in dict(old).items():  # ordered by cursor, so the dict has the highest of each scope
        await store.set_forgotten_to(tx, scope, cursor)
    await store.delete_events_to(tx, old[-1][1])


RETAINED = Retained("record.events", lambda settings: settings.event_retention_s, _is_old, _forget)
