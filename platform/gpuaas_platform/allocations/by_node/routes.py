"""Nodes together with the allocations on them, over HTTP."""

from gpuaas_contract import capacity

from gpuaas_platform.allocations.by_node import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(capacity.NODE_DRAIN, service.drain)
routes.write(capacity.NODE_RETIRE, service.retire)
routes.read(capacity.NODE_ALLOCATIONS, service.list_allocations)
