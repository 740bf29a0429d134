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


async def queued(reader: db.Reader, allocation_id: str) -> list[ArtifactPlacement]:
    return await PLACEMENTS.find(reader, "state = 'queued' AND allocation_id = $1", allocation_id)
