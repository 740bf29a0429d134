"""Forget deliveries and placements that are over, and what uploads left behind that died. A look costs one step in an
index."""

import functools

from gpuaas_platform.artifacts import content, store
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock

TOPIC = "artifacts.sweep"
_BATCH = 500
_EXPIRED_KEPT_S = 86_400
"""For a day one that is over is told apart from one that never was."""


async def sweep(site: Site) -> None:
    content.blobs(site).drop_abandoned_drafts()
    expired_before = clock.micros(site.clock()) - _EXPIRED_KEPT_S * 1_000_000
    for table in store.EXPIRING:
        forget = functools.partial(store.forget, table=table, expired_before=expired_before, limit=_BATCH)
        while (oldest := await store.oldest_expiry(site.database.reader, table)) and oldest < expired_before:
            await site.database.write(forget)
