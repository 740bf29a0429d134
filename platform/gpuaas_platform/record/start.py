"""What the store shows before a server starts: the clock is wrong, or signed rows are missing.

`server` calls it. A missing row means that the database is an old copy, or that the file with its last changes (WAL)
was removed. A server that worked on it would give out the same numbers and names again."""

import datetime

import structlog

from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.kit import clock, db
from gpuaas_platform.record import chain, heads, service, trail

log = structlog.get_logger()

_BEHIND_S_MAX = 60.0
_APART_S_MAX = 60.0
_DATABASE_CLOCK_FIX = "Set the clock that is wrong. If it is the one of the database, start with --accept-clock."
_CLOCK_FIX = "Set the clock. If its time is right, start with --accept-clock until the time of that row has passed."
_ROWS_FIX = (
    "Restore the newest database, with all its files. If the rows are lost for good, start once with "
    "--accept-data-loss: the heads are set aside as evidence."
)


class Refused(Exception):
    """The server must not start on this record. `fix` is what the operator can do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


async def check(site: Site) -> None:
    """Raise `Refused` if the clock is behind the newest row, or if the database has not the rows that were signed.

    This does not detect a clock that is ahead: the server may have been off for that long. See
    `check_database_clock`."""
    await _check_clock(site.database.reader, site.clock(), is_accepted=site.settings.accept_clock)
    lost = await _lost(site)
    if lost and not site.settings.accept_data_loss:
        some = "; ".join(_shown(head) for head in lost[:3])
        raise Refused(f"the database is older than its signed heads ({len(lost)} chains): {some}", _ROWS_FIX)
    if lost:
        await _accept(site, lost)


async def check_database_clock(site: Site) -> None:
    """Raise `Refused` if the clock differs from that of the PostgreSQL server. A second server whose clock is ahead
    would end leases and delete rows that are in use by the others. SQLite has the clock of this machine."""
    if not site.settings.database_url:
        return
    row = await site.database.reader.one("SELECT clock_timestamp()")
    now, database_now = site.clock(), row[0] if row is not None else clock.EPOCH
    apart_s = (now - database_now).total_seconds()
    if abs(apart_s) <= _APART_S_MAX:
        return
    if not site.settings.accept_clock:
        text = f"the clock shows {now:%FT%TZ}, but the clock of the database shows {database_now:%FT%TZ}"
        raise Refused(text, _DATABASE_CLOCK_FIX)
    log.warning("clock.accepted", ahead_of_database_s=round(apart_s), now=now.isoformat())


async def _check_clock(reader: db.Reader, now: datetime.datetime, *, is_accepted: bool) -> None:
    newest = clock.moment(await trail.newest_at(reader))
    behind_s = (newest - now).total_seconds()
    if behind_s <= _BEHIND_S_MAX:
        return
    if not is_accepted:
        text = f"the clock shows {now:%FT%TZ}, but the newest row of the audit trail is of {newest:%FT%TZ}"
        raise Refused(text, _CLOCK_FIX)
    log.warning("clock.accepted", behind_s=round(behind_s), now=now.isoformat())


async def _lost(site: Site) -> list[chain.Head]:
    """Return the last heads of chains in which the signed row is missing or is another one."""
    reader, last = site.database.reader, heads.last_heads(heads.folder_in(site.settings.data_dir))
    return [head for head in last if await trail.hash_at(reader, head.chain, head.position) != head.hash]


async def _accept(site: Site, lost: list[chain.Head]) -> None:
    origin, names = system_origin(site.clock()), [head.chain for head in lost]
    details = {head.chain: head.position for head in lost}
    await site.database.write(
        lambda tx: service.audit(tx, origin, "record.data_loss.accept", "platform", details={"signed": details})
    )
    aside = heads.set_aside(heads.folder_in(site.settings.data_dir), names, origin.now)
    log.warning("audit.data_loss_accepted", chains=len(names), heads=str(aside))


def _shown(head: chain.Head) -> str:
    return f"row {head.position} of chain {head.chain}, signed at {head.time}, is missing or was replaced"
