"""How long expired placements are kept."""

from gpuaas_platform.kit import db
from gpuaas_platform.kit.retention import Retained

_EXPIRED_KEPT_S = 86_400


async def _is_old(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM artifact_placements WHERE expires_at < $1 LIMIT 1", before) is not None


async def _forget(tx: db.Tx, before: int, limit: int) -> None:
    await tx.run(
        """DELETE FROM artifact_placements WHERE placement_id IN (
               SELECT placement_id FROM artifact_placements WHERE expires_at < $1 LIMIT $2)""",
        before,
        limit,
    )


RETAINED = Retained("access.placements", lambda _: _EXPIRED_KEPT_S, _is_old, _forget)
