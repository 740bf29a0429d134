"""SQL of instances, members, operations and access bundles."""

import msgspec
from gpuaas_contract.instances import AccessBundle, Instance, Member
from gpuaas_contract.operations import Operation

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

INSTANCES = Table(
    "instances",
    Instance,
    "instance_id",
    project_id=lambda instance: instance.project_id,
    name=lambda instance: instance.name,
    status=lambda instance: instance.status,
)
MEMBERS = Table(
    "members",
    Member,
    "member_id",
    instance_id=lambda member: member.instance_id,
    project_id=lambda member: member.project_id,
    allocation_id=lambda member: member.allocation_id,
    status=lambda member: member.status,
)
OPERATIONS = Table(
    "operations",
    Operation,
    "operation_id",
    project_id=lambda operation: operation.project_id,
    instance_id=lambda operation: operation.instance_id,
    app_slug=lambda operation: operation.app_slug,
    status=lambda operation: operation.status,
    lease_expires_at=lambda operation: clock.micros(operation.lease.expires_at) if operation.lease else 0,
    deadline_at=lambda operation: clock.micros(operation.deadline_at),
)
_BUNDLE = msgspec.json.Decoder(AccessBundle)


async def members_of(reader: db.Reader, instance_id: str) -> list[Member]:
    return await MEMBERS.find(reader, "instance_id = $1 ORDER BY member_id", instance_id)


async def active_operations(reader: db.Reader, instance_id: str) -> list[Operation]:
    return await OPERATIONS.find(reader, "instance_id = $1 AND status IN ('accepted', 'running')", instance_id)


async def claimable(reader: db.Reader, project_id: str, app_slug: str, now: int) -> Operation | None:
    """The oldest operation nobody holds: new, or held under a lease that ran out."""
    found = await OPERATIONS.find(
        reader,
        """project_id = $1 AND app_slug = $2 AND status IN ('accepted', 'running') AND lease_expires_at <= $3
           AND deadline_at > $3 ORDER BY operation_id LIMIT 1""",
        project_id,
        app_slug,
        now,
    )
    return found[0] if found else None


async def held_under(reader: db.Reader, project_id: str, claim_id: str, now: int) -> Operation | None:
    """The operation a claim got already, when its answer was lost."""
    open_ones = await OPERATIONS.find(
        reader, "project_id = $1 AND status = 'running' AND lease_expires_at > $2", project_id, now
    )
    return next((found for found in open_ones if found.lease and found.lease.claim_id == claim_id), None)


async def overdue(reader: db.Reader, now: int) -> list[Operation]:
    return await OPERATIONS.find(reader, "status IN ('accepted', 'running') AND deadline_at <= $1 LIMIT 100", now)


async def live_count(reader: db.Reader, project_id: str) -> int:
    row = await reader.one("SELECT COUNT(*) FROM instances WHERE project_id = $1 AND status <> 'deleted'", project_id)
    return int(row[0]) if row is not None else 0


async def live_instance_named(reader: db.Reader, project_id: str, name: str) -> Instance | None:
    found = await INSTANCES.find(reader, "project_id = $1 AND name = $2 AND status <> 'deleted'", project_id, name)
    return found[0] if found else None


async def put_bundle(tx: db.Tx, instance_id: str, bundle: AccessBundle) -> None:
    await tx.run(
        """INSERT INTO access_bundles (instance_id, document) VALUES ($1, $2)
           ON CONFLICT (instance_id) DO UPDATE SET document = excluded.document""",
        instance_id,
        msgspec.json.encode(bundle).decode(),
    )


async def bundle(reader: db.Reader, instance_id: str) -> AccessBundle | None:
    row = await reader.one("SELECT document FROM access_bundles WHERE instance_id = $1", instance_id)
    return _BUNDLE.decode(row[0]) if row is not None else None
