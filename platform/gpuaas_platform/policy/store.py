"""SQL of overlays: one row per scope that has one."""

from collections.abc import Sequence

from gpuaas_contract.policy import PolicyLayer

from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

OVERLAYS = Table("policy_overlays", PolicyLayer, "scope", layer=lambda overlay: overlay.layer)


async def of_scopes(reader: db.Reader, scopes: Sequence[str]) -> dict[str, PolicyLayer]:
    overlays = await OVERLAYS.find(reader, f"scope IN ({db.marks(len(scopes))})", *scopes)
    return {overlay.scope: overlay for overlay in overlays}
