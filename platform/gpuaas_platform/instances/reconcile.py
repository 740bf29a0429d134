"""The watchdog: what passes its deadline fails with class `expired`, so nothing runs for ever."""

from gpuaas_platform import call
from gpuaas_platform.instances import ending, store
from gpuaas_platform.kit import clock, db

TOPIC = "operations"


async def sweep(site: call.Site) -> None:
    now = site.clock()
    if not await store.overdue(site.database.reader, clock.micros(now)):
        return

    async def use_case(tx: db.Tx) -> None:
        for operation in await store.overdue(tx, clock.micros(now)):
            await ending.expire(tx, call.system_origin(now, operation.correlation_id), operation)

    await site.database.write(use_case)
