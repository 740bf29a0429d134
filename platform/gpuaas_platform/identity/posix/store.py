"""SQL of POSIX identities. Their rows are never deleted, so that no number and no login is given to two people."""

import datetime
from collections.abc import Collection, Sequence

from gpuaas_contract.posix import PosixIdentity

from gpuaas_platform.kit import clock, db

_SELECT = "SELECT user_id, org_id, login, uid, created_at FROM posix_identities"
_MISSING = """SELECT DISTINCT place.org_id, bindings.user_id FROM bindings
    JOIN (SELECT org_id, org_id AS scope FROM orgs UNION ALL SELECT org_id, project_id AS scope FROM projects) place
        ON place.scope = bindings.scope
    LEFT JOIN posix_identities ON posix_identities.org_id = place.org_id
        AND posix_identities.user_id = bindings.user_id
    WHERE posix_identities.user_id IS NULL AND (bindings.expires_at = 0 OR bindings.expires_at > $1)
    ORDER BY place.org_id, bindings.user_id"""


async def get(reader: db.Reader, org_id: str, user_id: str) -> PosixIdentity | None:
    row = await reader.one(f"{_SELECT} WHERE org_id = $1 AND user_id = $2", org_id, user_id)
    return _identity(row) if row is not None else None


async def of_orgs(reader: db.Reader, org_id: str = "") -> list[PosixIdentity]:
    """Return the identities of an organisation; of all if it is empty."""
    where, values = db.equal({"org_id": org_id})
    return [_identity(row) for row in await reader.all(f"{_SELECT} WHERE {where}", *values)]


async def missing(reader: db.Reader, now: datetime.datetime) -> list[tuple[str, str]]:
    """Return organisation and person of each person who has a role there and no identity."""
    return [(row[0], row[1]) for row in await reader.all(_MISSING, clock.micros(now))]


async def reserved(reader: db.Reader) -> set[str]:
    return {row[0] for row in await reader.all("SELECT login FROM reserved_logins")}


async def reserve(tx: db.Tx, logins: Collection[str], app_slug: str) -> None:
    for login in sorted(logins):
        sql = "INSERT INTO reserved_logins (login, app_slug) VALUES ($1, $2) ON CONFLICT (login) DO NOTHING"
        await tx.run(sql, login, app_slug)


async def next_uid(reader: db.Reader, org_id: str, first: int) -> int:
    row = await reader.one("SELECT next_uid FROM posix_numbers WHERE org_id = $1", org_id)
    return max(int(row[0]), first) if row is not None else first


async def set_next_uid(tx: db.Tx, org_id: str, uid: int) -> None:
    sql = """INSERT INTO posix_numbers (org_id, next_uid) VALUES ($1, $2)
             ON CONFLICT (org_id) DO UPDATE SET next_uid = excluded.next_uid"""
    await tx.run(sql, org_id, uid)


async def skip_numbers(tx: db.Tx, count: int) -> None:
    await tx.run("UPDATE posix_numbers SET next_uid = next_uid + $1", count)


async def add(tx: db.Tx, identity: PosixIdentity) -> None:
    sql = "INSERT INTO posix_identities (org_id, user_id, login, uid, created_at) VALUES ($1, $2, $3, $4, $5)"
    at = clock.micros(identity.created_at)
    await tx.run(sql, identity.org_id, identity.user_id, identity.login, identity.uid, at)


async def scopes_with_people(
    reader: db.Reader, now: datetime.datetime, scopes: Sequence[str] | None
) -> list[tuple[str, str]]:
    """Return scope and user id of each role binding that has not expired, in these scopes or everywhere."""
    wanted = [] if scopes is None else scopes
    where = "1 = 1" if scopes is None else f"scope IN ({db.marks(len(wanted), 2)})"
    sql = f"SELECT DISTINCT scope, user_id FROM bindings WHERE (expires_at = 0 OR expires_at > $1) AND {where}"  # noqa: S608 - marks only
    return [(row[0], row[1]) for row in await reader.all(sql, clock.micros(now), *wanted)]


def _identity(row: db.Row) -> PosixIdentity:
    return PosixIdentity(
        user_id=row[0], org_id=row[1], login=row[2], uid=row[3], gid=row[3], created_at=clock.moment(row[4])
    )
