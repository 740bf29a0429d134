"""SQL of overlays: one row per scope that has one."""

from collections.abc import Sequence

from gpuaas_contract.policy import PolicyLayer

from gpuaas_platform.kit import db
from gpuaas_platform.kit.tables import Table

OVERLAYS = Table("policy_overlays", PolicyLayer, "scope", layer=lambda overlay: overlay.layer)


async def of_scopes(reader: db.Reader, scopes: Sequence[str]) -> dict[str, PolicyLayer]:
    """`scopes` is the chain platform, organisation, project, or the beginning of it."""
    padded = [*scopes, "", ""][:3]
    overlays = await OVERLAYS.find(reader, "scope IN ($1, $2, $3)", *padded)
    return {overlay.scope: overlay for overlay in overlays}
