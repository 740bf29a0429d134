"""The watchdog: an operation that passes its deadline fails with class `expired`, and an instance that no controller
looks after gets a condition."""

import datetime
import functools

import structlog
from gpuaas_contract.lifecycles import ENDED_OPERATION

from gpuaas_platform import call
from gpuaas_platform.kit import clock, db
from gpuaas_platform.operations import end, read, stewards, store

log = structlog.get_logger()

TOPIC = "operations"


async def sweep(site: call.Site) -> None:
    """End each overdue operation in a transaction of its own: one that cannot be ended does not block the others."""
    now = site.clock()
    await stewards.mark_unobserved(site, now)
    for operation_id in await store.overdue(site.database.reader, clock.micros(now)):
        expire = functools.partial(_expire, operation_id=operation_id, now=now)
        try:
            await site.database.write(expire)
        except db.Unavailable:
            raise
        except Exception:
            log.exception("operation.expire_failed", operation_id=operation_id)


async def _expire(tx: db.Tx, *, operation_id: str, now: datetime.datetime) -> None:
    operation = await store.get(tx, operation_id)
    if operation is not None and operation.status not in ENDED_OPERATION and operation.deadline_at <= now:
        origin = call.system_origin(now, operation.correlation_id)
        await end.expire(tx, origin, await read.shown(tx, operation))
