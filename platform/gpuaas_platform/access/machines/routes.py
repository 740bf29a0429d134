"""Machine access over HTTP: request it, list it, revoke it."""

from gpuaas_contract import access

from gpuaas_platform.access.machines import revoke, service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(access.MACHINE_ACCESS, service.grant, prepare=service.with_signing_key)
routes.read(access.GRANT_LIST, service.list_grants)
routes.write(access.GRANT_REVOKE, revoke.revoke)
