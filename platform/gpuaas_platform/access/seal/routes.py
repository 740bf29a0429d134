"""Custody over HTTP."""

from gpuaas_contract import custody

from gpuaas_platform.access.seal import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.flow(custody.CUSTODY_GET, service.get_custody)
routes.flow(custody.UNSEAL, service.unseal)
