"""Allocations over HTTP."""

from gpuaas_contract import capacity

from gpuaas_platform.allocations import release, service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(capacity.ALLOCATION_CREATE, service.create, authorise=service.check_place)
routes.read(capacity.ALLOCATION_LIST, service.list_allocations)
routes.read(capacity.ALLOCATION_GET, service.get)
routes.write(capacity.ALLOCATION_RELEASE, release.release)
routes.write(capacity.ALLOCATION_RELEASE_USED, release.release_used)
routes.write(capacity.ALLOCATION_FORCE_RELEASE, release.force_release)
