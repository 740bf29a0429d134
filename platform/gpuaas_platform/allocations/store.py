"""SQL of allocations."""

from collections.abc import Sequence

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
_REQUESTED = "status = 'requested' ORDER BY allocation_id"


def list_filter(project_id: str, query: AllocationQuery) -> tuple[str, list[str]]:
    """The condition of a list of a project's allocations."""
    where, values = db.equal(
        {"project_id": project_id, "status": query.status, "sku": query.sku, "region": query.region}
    )
    return f"{where} AND status = 'active' AND is_used = 0" if query.free else where, values


async def many(reader: db.Reader, allocation_ids: Sequence[str]) -> dict[str, Allocation]:
    """These allocations by id, in one statement; unknown ids are left out."""
    if not allocation_ids:
        return {}
    where = f"allocation_id IN ({db.marks(len(allocation_ids))})"
    allocations = await ALLOCATIONS.find(reader, where, *allocation_ids)
    return {allocation.allocation_id: allocation for allocation in allocations}


async def on_node(reader: db.Reader, node_id: str) -> list[Allocation]:
    """Allocations that hold the node, failed ones included."""
    return await ALLOCATIONS.find(reader, "node_id = $1 AND status <> 'released' ORDER BY allocation_id", node_id)


async def unreleased_count(reader: db.Reader, project_id: str) -> int:
    """Allocations of the project that hold a node. A failed one holds it until it is released."""
    row = await reader.one(
        "SELECT COUNT(*) FROM allocations WHERE project_id = $1 AND status <> 'released'", project_id
    )
    return int(row[0]) if row is not None else 0


async def requested(reader: db.Reader) -> list[Allocation]:
    """Allocations that wait for the SSH authority."""
    return await ALLOCATIONS.find(reader, _REQUESTED)


async def provisions_due(reader: db.Reader, now: int) -> list[Allocation]:
    """Allocations whose node was installed again, is ready, and has to be prepared now."""
    return await _due(reader, "provision_retry_at", now)


async def releases_due(reader: db.Reader, now: int) -> list[Allocation]:
    """Allocations whose node could not be cleaned, is ready, and has to be cleaned now."""
    return await _due(reader, "release_retry_at", now)


async def _due(reader: db.Reader, column: str, now: int) -> list[Allocation]:
    # Joined with `nodes`, because the due allocations of lost nodes must not fill the batch.
    return await ALLOCATIONS.find(
        reader,
        f"""{column} > 0 AND {column} <= $1
            AND EXISTS (SELECT 1 FROM nodes WHERE nodes.node_id = allocations.node_id AND nodes.status = 'ready'
                        AND nodes.admin_state <> 'retired')
            ORDER BY {column} LIMIT $2""",  # noqa: S608 - the column is ours
        now,
        _BATCH,
    )
