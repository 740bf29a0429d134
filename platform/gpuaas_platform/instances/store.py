"""SQL of instances, members, holds, failed joins and access bundles."""

import datetime
from collections.abc import Sequence

import msgspec
from gpuaas_contract.holds import Hold
from gpuaas_contract.instances import AccessBundle, Instance, InstanceCount, Member

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import SplitTable, Table

INSTANCES = SplitTable(
    "instances",
    Instance,
    "instance_id",
    "instance_requests",
    ("placement", "inputs", "previous_inputs", "inputs_before", "artifacts"),
    ("steward",),
    project_id=lambda instance: instance.project_id,
    app_slug=lambda instance: instance.app_slug,
    name=lambda instance: instance.name,
    status=lambda instance: instance.status,
    revision=lambda instance: instance.revision,
    operator_id=lambda instance: instance.operator_service_account_id,
)
SHOWN = INSTANCES.shown_with(
    steward="SELECT document FROM stewardships WHERE stewardships.instance_id = instances.instance_id"
)
"""Instances as people read them: with their steward."""
MEMBERS = Table(
    "members",
    Member,
    "member_id",
    instance_id=lambda member: member.instance_id,
    project_id=lambda member: member.project_id,
    allocation_id=lambda member: member.allocation_id,
    node_name=lambda member: member.node_name,
    status=lambda member: member.status,
    component_key=lambda member: member.component_key,
)
HOLDS = Table(
    "holds",
    Hold,
    "hold_id",
    instance_id=lambda hold: hold.instance_id,
    member_id=lambda hold: hold.member_id,
    ends_at=lambda hold: clock.micros(min(hold.expires_at, hold.lifted_at or hold.expires_at)),
)
_BUNDLE = msgspec.json.Decoder(AccessBundle)
LIVE_INSTANCES = "project_id = $1 AND status <> 'deleted'"
_LIVE_OF_APP = f"{LIVE_INSTANCES} AND app_slug = $2"
_LIVING = "status NOT IN ('removed', 'tombstoned')"
LIVE_MEMBERS = f"instance_id = $1 AND {_LIVING}"
"""SQL conditions. Queries repeat them literally, so that both engines use the partial indexes."""


async def members_named(reader: db.Reader, member_ids: Sequence[str]) -> list[Member]:
    """Return the members with these ids, including removed and tombstoned ones."""
    if not member_ids:
        return []
    return await MEMBERS.find(reader, f"member_id IN ({db.marks(len(member_ids))}) ORDER BY member_id", *member_ids)


async def live_members(reader: db.Reader, instance_id: str) -> list[Member]:
    """Return the members that are not removed or tombstoned. The time does not grow with the number of removed ones."""
    return await MEMBERS.find(reader, f"{LIVE_MEMBERS} ORDER BY member_id", instance_id)


async def live_members_on(reader: db.Reader, instance_id: str, node_name: str) -> list[Member]:
    return await MEMBERS.find(reader, f"{LIVE_MEMBERS} AND node_name = $2 ORDER BY member_id", instance_id, node_name)


async def carrying(reader: db.Reader, instance_id: str, allocation_ids: Sequence[str]) -> set[str]:
    """Return which of the allocations have a live member of the instance."""
    where = f"{LIVE_MEMBERS} AND allocation_id IN ({db.marks(len(allocation_ids), 2)})"
    rows = await reader.all(f"SELECT allocation_id FROM members WHERE {where}", instance_id, *allocation_ids)  # noqa: S608
    return {row[0] for row in rows}


async def unsound_members(reader: db.Reader, instance_id: str) -> dict[str, int]:
    """Count the degraded and failed members, by status. The time does not grow with the number of other members."""
    sql = """SELECT status, COUNT(*) FROM members
             WHERE instance_id = $1 AND status IN ('degraded', 'failed') GROUP BY status"""
    return {row[0]: int(row[1]) for row in await reader.all(sql, instance_id)}


async def live_member_counts(reader: db.Reader, instance_id: str) -> dict[str, dict[str, int]]:
    """Count the live members by role and status. Only an index is read, no documents."""
    sql = f"SELECT component_key, status, COUNT(*) FROM members WHERE {LIVE_MEMBERS} GROUP BY component_key, status"  # noqa: S608
    counts: dict[str, dict[str, int]] = {}
    for row in await reader.all(sql, instance_id):
        counts.setdefault(row["component_key"], {})[row["status"]] = int(row[2])
    return counts


async def live_counts(reader: db.Reader, project_id: str) -> list[InstanceCount]:
    """Count the live instances by app and status. Only an index is read, no documents."""
    sql = f"""SELECT app_slug, status, COUNT(*) FROM instances WHERE {LIVE_INSTANCES}
              GROUP BY app_slug, status ORDER BY app_slug, status"""  # noqa: S608 - the condition is ours
    rows = await reader.all(sql, project_id)
    return [InstanceCount(app_slug=row[0], status=row[1], instances=int(row[2])) for row in rows]


async def live_count(reader: db.Reader, project_id: str) -> int:
    return await _count(reader, f"instances WHERE {LIVE_INSTANCES}", project_id)


async def live_count_of_app(reader: db.Reader, project_id: str, app_slug: str) -> int:
    return await _count(reader, f"instances WHERE {_LIVE_OF_APP}", project_id, app_slug)


async def live_member_count_of_app(reader: db.Reader, project_id: str, app_slug: str) -> int:
    """Count the live members of all instances of the app in the project."""
    of_app = f"instance_id IN (SELECT instance_id FROM instances WHERE {_LIVE_OF_APP})"  # noqa: S608 - the parts are ours
    return await _count(reader, f"members WHERE {_LIVING} AND {of_app}", project_id, app_slug)


async def _count(reader: db.Reader, rows: str, *values: str) -> int:
    row = await reader.one(f"SELECT COUNT(*) FROM {rows}", *values)  # noqa: S608
    return int(row[0]) if row is not None else 0


async def live_instance_named(reader: db.Reader, project_id: str, name: str) -> Instance | None:
    matches = await INSTANCES.find(reader, "project_id = $1 AND name = $2 AND status <> 'deleted'", project_id, name)
    return matches[0] if matches else None


async def deleted_among(reader: db.Reader, instance_ids: Sequence[str]) -> list[Instance]:
    if not instance_ids:
        return []
    where = f"instance_id IN ({db.marks(len(instance_ids))}) AND status = 'deleted' ORDER BY instance_id"
    return await INSTANCES.find(reader, where, *instance_ids)


async def standing_holds(reader: db.Reader, instance_id: str, now: datetime.datetime) -> list[Hold]:
    """Return the holds of the instance that are neither lifted nor expired."""
    where = "instance_id = $1 AND ends_at > $2 ORDER BY ends_at"
    return await HOLDS.find(reader, where, instance_id, clock.micros(now))


async def note_failed_join(tx: db.Tx, member: Member, now: datetime.datetime) -> None:
    sql = "INSERT INTO failed_joins (instance_id, component_key, failed_at, member_id) VALUES ($1, $2, $3, $4)"
    await tx.run(sql, member.instance_id, member.component_key, clock.micros(now), member.member_id)


async def failed_joins(
    reader: db.Reader, instance_id: str, component_key: str, since: datetime.datetime
) -> list[datetime.datetime]:
    sql = "SELECT failed_at FROM failed_joins WHERE instance_id = $1 AND component_key = $2 AND failed_at > $3"
    rows = await reader.all(sql, instance_id, component_key, clock.micros(since))
    return [clock.moment(row[0]) for row in rows]


async def forget_failed_joins(tx: db.Tx, instance_id: str, component_key: str) -> None:
    await tx.run("DELETE FROM failed_joins WHERE instance_id = $1 AND component_key = $2", instance_id, component_key)


async def has_old_failed_joins(reader: db.Reader, failed_before: int) -> bool:
    row = await reader.one("SELECT EXISTS (SELECT 1 FROM failed_joins WHERE failed_at < $1)", failed_before)
    return row is not None and bool(row[0])


async def forget_old_failed_joins(tx: db.Tx, failed_before: int, limit: int) -> None:
    sql = """DELETE FROM failed_joins WHERE failed_at < $1 AND (member_id, failed_at) IN (
             SELECT member_id, failed_at FROM failed_joins WHERE failed_at < $1 LIMIT $2)"""
    await tx.run(sql, failed_before, limit)


async def add_missing(tx: db.Tx, instance_id: str, component_key: str) -> None:
    sql = """INSERT INTO missing_members (instance_id, component_key, missing) VALUES ($1, $2, 1)
             ON CONFLICT (instance_id, component_key) DO UPDATE SET missing = missing_members.missing + 1"""
    await tx.run(sql, instance_id, component_key)


async def fill_missing(tx: db.Tx, instance_id: str, component_key: str, added: int) -> None:
    sql = """UPDATE missing_members SET missing = CASE WHEN missing > $3 THEN missing - $3 ELSE 0 END
             WHERE instance_id = $1 AND component_key = $2"""
    await tx.run(sql, instance_id, component_key, added)


async def forget_missing(tx: db.Tx, instance_id: str) -> None:
    await tx.run("DELETE FROM missing_members WHERE instance_id = $1", instance_id)


async def missing(reader: db.Reader, instance_id: str) -> dict[str, int]:
    """Return how many members of each role were given up and not replaced."""
    sql = "SELECT component_key, missing FROM missing_members WHERE instance_id = $1"
    return {row[0]: int(row[1]) for row in await reader.all(sql, instance_id)}


async def put_bundle(tx: db.Tx, instance_id: str, bundle: AccessBundle) -> None:
    sql = """INSERT INTO access_bundles (instance_id, document) VALUES ($1, $2)
             ON CONFLICT (instance_id) DO UPDATE SET document = excluded.document"""
    await tx.run(sql, instance_id, msgspec.json.encode(bundle).decode())


async def bundle(reader: db.Reader, instance_id: str) -> AccessBundle | None:
    row = await reader.one("SELECT document FROM access_bundles WHERE instance_id = $1", instance_id)
    return _BUNDLE.decode(row[0]) if row is not None else None
