"""Delete rows that are older than they are kept. Each domain lists its own in a `Retained`; one loop sweeps them all.

A sweep opens a write transaction only where there is something to delete, and deletes a small batch in each."""

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
    """Rows of one domain that are kept for a time. Moments are in microseconds."""

    name: str
    kept_s: Callable[[Settings], float]
    is_old: Callable[[db.Reader, int], Awaitable[bool]]
    """Whether a row is older than this moment; runs every second, so it must read one index entry at most."""
    forget: Callable[[db.Tx, int, int], Awaitable[None]]
    """Delete rows older than this moment, at most so many."""


async def sweep(database: db.Database, settings: Settings, now: datetime.datetime, table: Sequence[Retained]) -> None:
    """A failure of one entry is logged and does not stop the others."""
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
