"""Delete rows whose retention time is over. Each domain declares its rows in a `Retained`; one loop sweeps all of them.

A sweep opens a write transaction only if there is a row to delete, and deletes a small batch in each transaction."""

import datetime
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.settings import Settings

log = structlog.get_logger()

TOPIC = "retention"
BATCH = 500


@dataclass(frozen=True)
class Retained:
    """Declares rows of one domain that are kept for a limited time. Times are in microseconds since 1970."""

    name: str
    kept_s: Callable[[Settings], float]
    is_old: Callable[[db.Reader, int], Awaitable[bool]]
    """Return whether any row is older than this time. Runs every second, so it must read at most one index entry."""
    forget: Callable[[db.Tx, int, int], Awaitable[None]]
    """Function that deletes stored rows older than a given time, at most as many as its last argument."""


async def sweep(database: db.Database, settings: Settings, now: datetime.datetime, table: Sequence[Retained]) -> None:
    """Delete the old rows of every entry. A failure of one entry is logged and does not stop the others."""
    for retained in table:
        before = clock.micros(now) - int(retained.kept_s(settings) * 1_000_000)
        try:
            while await retained.is_old(database.reader, before):
                await database.write(functools.partial(_forget, retained, before))
        except db.Unavailable:
            raise
        except Exception:
            log.exception("retention.sweep_failed", retained=retained.name)


async def _forget(retained: Retained, before: int, tx: db.Tx) -> None:
    await retained.forget(tx, before, BATCH)
