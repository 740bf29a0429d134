"""Placing artifacts over HTTP. `artifacts` has the other routes of placements."""

from gpuaas_contract import placements

from gpuaas_platform.access.placements import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(placements.PLACEMENT_CREATE, service.place)
