"""Forget events older than the retention, a small batch per transaction, and keep in mind how far each
record was cut: that is what a follower's cursor is compared with."""

import datetime

from gpuaas_platform.call import Site
from gpuaas_platform.kit import db
from gpuaas_platform.record import rules, store

TOPIC = "events-retention"
_BATCH = 500


async def sweep(site: Site) -> None:
    keep_from = rules.keep_from(site.clock(), site.settings.event_retention_s)
    while await store.oldest_events(site.database.reader, keep_from, 1):
        await site.database.write(lambda tx: _forget(tx, keep_from))


async def _forget(tx: db.Tx, keep_from: datetime.datetime) -> None:
    """From the oldest on and never past one that is kept, so that what is left is always the newest part."""
    dropped = await store.oldest_events(tx, keep_from, _BATCH)
    if not dropped:
        return
    for scope, cursor in rules.horizons(dropped).items():
        await store.set_forgotten_to(tx, scope, cursor)
    await store.delete_events_to(tx, dropped[-1][1])
