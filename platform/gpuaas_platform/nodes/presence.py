"""Since when the platform has heard its nodes without a break: what it could not hear says nothing of who was silent.

Whichever process sweeps notes it in the store, and the note itself shows that heartbeats could be recorded. So after a
pause of all processes, or of the store, everybody gets time to speak.
"""

import datetime

from gpuaas_platform.call import Site
from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.settings import Settings

_READ = "SELECT since, noted_at FROM node_hearing"
_WRITE = """INSERT INTO node_hearing (place, since, noted_at) VALUES (1, $1, $2)
            ON CONFLICT (place) DO UPDATE SET since = excluded.since, noted_at = excluded.noted_at"""


async def note(tx: db.Tx, site: Site, now: datetime.datetime) -> float:
    """`so_far_s`, by the one who keeps it. Called steadily; after a longer pause it starts anew."""
    row = await tx.one(_READ)
    pause_s_max, at = _pause_s_max(site.settings), clock.micros(now)
    if row is None or _seconds(row["noted_at"], at) > pause_s_max:
        await tx.run(_WRITE, at, at)
    elif _seconds(row["noted_at"], at) > pause_s_max / 3:
        await tx.run(_WRITE, row["since"], at)
    return await so_far_s(tx, site, now)


async def so_far_s(reader: db.Reader, site: Site, now: datetime.datetime) -> float:
    """Seconds without a break. A process that has just begun leaves the judging to those that were there before."""
    row, at = await reader.one(_READ), clock.micros(now)
    if row is None or _seconds(row["noted_at"], at) > _pause_s_max(site.settings):
        return 0.0
    return _seconds(max(row["since"], clock.micros(site.opened_at)), at)


def _pause_s_max(settings: Settings) -> float:
    return settings.heartbeat_interval_s + 2 * settings.sweep_interval_s


def _seconds(since: int, until: int) -> float:
    return (until - since) / 1_000_000
