"""Forget failed joins that no breaker counts any more, a batch in each pass."""

import functools

from gpuaas_contract.catalog import BREAKER_WINDOW_S_MAX

from gpuaas_platform.call import Site
from gpuaas_platform.instances import store
from gpuaas_platform.kit import clock

TOPIC = "instances-retention"
BATCH = 500


async def sweep(site: Site) -> None:
    failed_before = clock.micros(site.clock()) - BREAKER_WINDOW_S_MAX * 1_000_000
    if await store.has_old_failed_joins(site.database.reader, failed_before):
        await site.database.write(
            functools.partial(store.forget_old_failed_joins, failed_before=failed_before, limit=BATCH)
        )
