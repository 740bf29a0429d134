"""Forget controllers that are not heard of any more and failed joins that no breaker counts, so much in each pass."""

import functools

from gpuaas_contract.catalog import BREAKER_WINDOW_S_MAX

from gpuaas_platform.call import Site
from gpuaas_platform.instances import store
from gpuaas_platform.kit import clock

TOPIC = "instances-retention"
BATCH = 500


async def sweep(site: Site) -> None:
    now = clock.micros(site.clock())
    seen_before = now - site.settings.controllers_kept_s * 1_000_000
    failed_before = now - BREAKER_WINDOW_S_MAX * 1_000_000
    forget = functools.partial(store.forget_old, seen_before=seen_before, failed_before=failed_before, limit=BATCH)
    if await store.is_old(site.database.reader, seen_before=seen_before, failed_before=failed_before):
        await site.database.write(forget)
