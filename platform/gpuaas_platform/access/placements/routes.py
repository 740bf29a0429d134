"""Placing artifacts over HTTP: who holds which operation is known here, the rest is `artifacts`."""

from gpuaas_contract import placements

from gpuaas_platform.access.placements import service as placing
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.write(placements.PLACEMENT_CREATE)
async def create_placement(call: Call, tx: db.Tx, body: placements.PlaceArtifact) -> placements.ArtifactPlacement:
    return await placing.place(tx, call, body)
