"""SQL of placements."""

from gpuaas_contract.placements import ArtifactPlacement

from gpuaas_platform.kit import clock, db
from gpuaas_platform.kit.tables import Table

PLACEMENTS = Table(
    "artifact_placements",
    ArtifactPlacement,
    "placement_id",
    allocation_id=lambda placement: placement.allocation_id,
    state=lambda placement: placement.state,
    expires_at=lambda placement: clock.micros(placement.expires_at),
)


_OLD = "expires_at < $1 AND state <> 'placed'"
"""What is on a machine stays on record, because the statement of a later teardown lists it."""


async def is_old(reader: db.Reader, before: int) -> bool:
    return await reader.one(f"SELECT 1 FROM artifact_placements WHERE {_OLD} LIMIT 1", before) is not None  # noqa: S608


async def forget(tx: db.Tx, before: int, limit: int) -> None:
    old = f"SELECT placement_id FROM artifact_placements WHERE {_OLD} LIMIT $2"  # noqa: S608
    await tx.run(f"DELETE FROM artifact_placements WHERE placement_id IN ({old})", before, limit)  # noqa: S608
