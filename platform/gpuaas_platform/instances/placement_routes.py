"""Placing artifacts over HTTP: who holds which operation is known here, the rest is `artifacts`."""

from gpuaas_contract import artifacts

from gpuaas_platform.call import Call, Routes
from gpuaas_platform.instances import placements
from gpuaas_platform.kit import db

routes = Routes()


@routes.write(artifacts.PLACEMENT_CREATE)
async def create_placement(call: Call, tx: db.Tx, body: artifacts.PlaceArtifact) -> artifacts.ArtifactPlacement:
    return await placements.place(tx, call, body)
