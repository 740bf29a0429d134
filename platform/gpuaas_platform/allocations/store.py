"""SQL of allocations."""

import datetime
from collections.abc import Sequence
from typing import Literal

from gpuaas_contract.capacity import Allocation, AllocationQuery

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

ALLOCATIONS = Table(
    "allocations",
    Allocation,
    "allocation_id",
    project_id=lambda allocation: allocation.project_id,
    node_id=lambda allocation: allocation.node_id,
    status=lambda allocation: allocation.status,
    sku=lambda allocation: allocation.sku,
    region=lambda allocation: allocation.region,
    is_used=lambda allocation: int(bool(allocation.used_by_instance_ids)),
    provision_retry_at=lambda allocation: clock.micros(allocation.provision_retry_at or clock.EPOCH),
    release_retry_at=lambda allocation: clock.micros(allocation.release_retry_at or clock.EPOCH),
)
_BATCH = 100


def list_filter(project_id: str, query: AllocationQuery) -> tuple[str, list[str]]:
    """Return the SQL condition, and its values, for a list of the project's allocations."""
    wanted = {"project_id": project_id, "status": query.status, "sku": query.sku, "region": query.region}
    where, values = db.equal(wanted)
    return f"{where} AND status = 'active' AND is_used = 0" if query.free else where, values


async def many(reader: db.Reader, allocation_ids: Sequence[str]) -> dict[str, Allocation]:
    """Return id -> allocation, read in one statement. Unknown ids are left out."""
    if not allocation_ids:
        return {}
    where = f"allocation_id IN ({db.marks(len(allocation_ids))})"
    allocations = await ALLOCATIONS.find(reader, where, *allocation_ids)
    return {allocation.allocation_id: allocation for allocation in allocations}


async def on_node(reader: db.Reader, node_id: str) -> list[Allocation]:
    """Return the allocations on the node that are not released, including failed ones."""
    return await ALLOCATIONS.find(reader, "node_id = $1 AND status <> 'released' ORDER BY allocation_id", node_id)


async def spares(reader: db.Reader, project_id: str) -> list[Allocation]:
    """Return the active allocations of the project whose node is ready and that neither an instance nor a person uses,
    newest first. A person uses the machine to which it has machine access."""
    where = """project_id = $1 AND status = 'active' AND is_used = 0
               AND NOT EXISTS (SELECT 1 FROM machine_grants WHERE machine_grants.state = 'active'
                               AND machine_grants.allocation_id = allocations.allocation_id)
               AND EXISTS (SELECT 1 FROM nodes WHERE nodes.node_id = allocations.node_id AND nodes.status = 'ready'
                           AND nodes.admin_state = 'active')
               ORDER BY allocation_id DESC"""
    return await ALLOCATIONS.find(reader, where, project_id)


async def unreleased_count(reader: db.Reader, project_id: str) -> int:
    """Return how many allocations of the project occupy a node. A failed one occupies it until it is released."""
    sql = "SELECT COUNT(*) FROM allocations WHERE project_id = $1 AND status <> 'released'"
    row = await reader.one(sql, project_id)
    return int(row[0]) if row is not None else 0


async def due(
    reader: db.Reader, column: Literal["provision_retry_at", "release_retry_at"], now: datetime.datetime
) -> list[Allocation]:
    """Return the allocations whose time in this column has passed and whose node is ready, at most a batch."""
    # Nodes are checked in the SQL, so that due allocations of lost nodes do not fill the batch.
    where = f"""{column} > 0 AND {column} <= $1
                AND EXISTS (SELECT 1 FROM nodes WHERE nodes.node_id = allocations.node_id AND nodes.status = 'ready'
                            AND nodes.admin_state <> 'retired')
                ORDER BY {column} LIMIT $2"""  # noqa: S608 - the column is ours
    return await ALLOCATIONS.find(reader, where, clock.micros(now), _BATCH)
