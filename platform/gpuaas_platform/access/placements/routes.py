"""Placements over HTTP: for controllers, and for the node that fetches the content."""

from gpuaas_contract import placements

from gpuaas_platform.access.placements import content, service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(placements.PLACEMENT_CREATE, service.place)
routes.flow(placements.PLACEMENT_GET, service.wait_for)
routes.stream(placements.PLACED_CONTENT_GET, content.open_content)
