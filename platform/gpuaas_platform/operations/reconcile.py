"""The watchdog: what passes its deadline fails with class `expired`, so nothing runs for ever."""

import datetime
import functools

import structlog
from gpuaas_contract.lifecycles import ENDED_OPERATION

from gpuaas_platform import call
from gpuaas_platform.instances import store
from gpuaas_platform.kit import clock, db
from gpuaas_platform.operations import end as ending

log = structlog.get_logger()

TOPIC = "operations"


async def sweep(site: call.Site) -> None:
    """Each by itself: one that cannot be ended keeps no other from it."""
    now = site.clock()
    for operation in await store.overdue(site.database.reader, clock.micros(now)):
        expire = functools.partial(_expire, operation_id=operation.operation_id, now=now)
        try:
            await site.database.write(expire)
        except db.Unavailable:
            raise
        except Exception:
            log.exception("an overdue operation cannot be ended", operation_id=operation.operation_id)


async def _expire(tx: db.Tx, *, operation_id: str, now: datetime.datetime) -> None:
    operation = await store.OPERATIONS.get(tx, operation_id)
    if operation is not None and operation.status not in ENDED_OPERATION and operation.deadline_at <= now:
        await ending.expire(tx, call.system_origin(now, operation.correlation_id), operation)
