"""SQL of stewardships: which controller looks after an instance between operations. `operations.stewards` uses it."""

import datetime
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from gpuaas_contract.instances import Steward
from gpuaas_contract.protocol import steward as steward_rules

from gpuaas_platform.kit import clock, db

_STEWARD = msgspec.json.Decoder(Steward)
_ENCODE = msgspec.json.Encoder().encode
_ROWS_PER_STATEMENT = 100
_NOT_DEPLOYED = ", ".join(f"'{status}'" for status in sorted(steward_rules.NOT_DEPLOYED))


class Row(NamedTuple):
    instance_id: str
    steward: Steward
    is_unobserved: bool = False
    """The platform has reported that no controller looks after the instance."""


class OfApp(NamedTuple):
    app_slug: str
    steward: Steward


class Deployed(NamedTuple):
    """An instance that can have a steward."""

    instance_id: str
    revision: int
    operator_id: str
    row: Row | None


async def get(reader: db.Reader, instance_id: str) -> Row | None:
    sql = "SELECT instance_id, document, is_unobserved FROM stewardships WHERE instance_id = $1"
    row = await reader.one(sql, instance_id)
    return _row(row) if row is not None else None


async def many(reader: db.Reader, instance_ids: Sequence[str]) -> dict[str, OfApp]:
    """Return the stewards of these instances, by instance id."""
    if not instance_ids:
        return {}
    sql = f"""SELECT instances.instance_id, app_slug, stewardships.document FROM stewardships
              JOIN instances ON instances.instance_id = stewardships.instance_id
              WHERE stewardships.instance_id IN ({db.marks(len(instance_ids))})"""  # noqa: S608 - marks
    return {row[0]: OfApp(row[1], _STEWARD.decode(row[2])) for row in await reader.all(sql, *instance_ids)}


async def of_app(reader: db.Reader, project_id: str, app_slug: str) -> list[Deployed]:
    """Return the deployed instances of the app in the project, with their stewards, in the order of their ids."""
    sql = f"""SELECT instances.instance_id, revision, operator_id, stewardships.document, is_unobserved
              FROM instances LEFT JOIN stewardships ON stewardships.instance_id = instances.instance_id
              WHERE project_id = $1 AND app_slug = $2 AND status <> 'deleted' AND status NOT IN ({_NOT_DEPLOYED})
              ORDER BY instances.instance_id"""  # noqa: S608 - the statuses are ours
    return [
        Deployed(row[0], int(row[1]), row[2], _row((row[0], row[3], row[4])) if row[3] else None)
        for row in await reader.all(sql, project_id, app_slug)
    ]


async def put(tx: db.Tx, rows: Iterable[Row]) -> None:
    for part in db.chunks(list(rows), _ROWS_PER_STATEMENT):
        values = ", ".join(f"({db.marks(4, 1 + 4 * number)})" for number in range(len(part)))
        sql = f"""INSERT INTO stewardships (instance_id, expires_at, is_unobserved, document) VALUES {values}
                  ON CONFLICT (instance_id) DO UPDATE SET expires_at = excluded.expires_at,
                  is_unobserved = excluded.is_unobserved, document = excluded.document"""  # noqa: S608 - marks
        await tx.run(sql, *(value for row in part for value in _values(row)))


async def withdraw(tx: db.Tx, instance_id: str, now: datetime.datetime) -> None:
    """End the stewardship of the instance, if there is one: its holder's epoch is old from now on."""
    row = await get(tx, instance_id)
    if row is not None:
        await put(tx, [row._replace(steward=steward_rules.withdrawn(row.steward, 1, now))])


async def withdraw_from(tx: db.Tx, project_id: str, actor_id: str, now: datetime.datetime) -> None:
    """End all stewardships that the account holds in the project."""
    sql = """SELECT stewardships.instance_id, stewardships.document, is_unobserved FROM stewardships
             JOIN instances ON instances.instance_id = stewardships.instance_id WHERE instances.project_id = $1"""
    rows = [_row(row) for row in await tx.all(sql, project_id)]
    held = [row for row in rows if row.steward.actor_id == actor_id]
    await put(tx, [row._replace(steward=steward_rules.withdrawn(row.steward, 1, now)) for row in held])


async def raise_epochs(tx: db.Tx, by: int) -> None:
    """Raise the epochs of all stewardships and end their leases."""
    sql = "SELECT instance_id, document, is_unobserved FROM stewardships"
    rows = [_row(row) for row in await tx.all(sql)]
    ended = datetime.datetime.fromtimestamp(0, datetime.UTC)
    await put(tx, [row._replace(steward=steward_rules.withdrawn(row.steward, by, ended)) for row in rows])


async def expired(reader: db.Reader, before: datetime.datetime) -> list[str]:
    """Return instances whose stewardship ended before this time, and of which this is not reported yet; 100 at most."""
    sql = """SELECT instance_id FROM stewardships WHERE expires_at < $1 AND is_unobserved = 0
             ORDER BY expires_at LIMIT 100"""
    return [row[0] for row in await reader.all(sql, clock.micros(before))]


async def forget(tx: db.Tx, instance_id: str) -> None:
    await tx.run("DELETE FROM stewardships WHERE instance_id = $1", instance_id)


def _row(row: db.Row | tuple[object, object, object]) -> Row:
    return Row(str(row[0]), _STEWARD.decode(str(row[1])), bool(row[2]))


def _values(row: Row) -> tuple[object, ...]:
    expires_at = clock.micros(row.steward.expires_at)
    return row.instance_id, expires_at, int(row.is_unobserved), _ENCODE(row.steward).decode()
