"""Forget deliveries that are over, and what uploads left behind that died. A look costs one step in an index."""

from gpuaas_platform.artifacts import content, store
from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock

TOPIC = "artifacts.sweep"
_BATCH = 500
_EXPIRED_KEPT_S = 86_400
"""For a day a delivery that is over is told apart from one that never was."""


async def sweep(site: Site) -> None:
    content.blobs(site).drop_abandoned_drafts()
    expired_before = clock.micros(site.clock()) - _EXPIRED_KEPT_S * 1_000_000
    while (oldest := await store.oldest_expiry(site.database.reader)) is not None and oldest < expired_before:
        await site.database.write(lambda tx: store.forget_deliveries(tx, expired_before, _BATCH))
