"""Runtime secrets over HTTP."""

from gpuaas_contract import secrets

from gpuaas_platform.access.secrets import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.flow(secrets.SECRET_ISSUE, service.issue)
routes.flow(secrets.DELIVERY_OPEN, service.open_delivery)
routes.read(secrets.SECRET_LIST, service.list_secrets)
routes.write(secrets.SECRET_REVOKE, service.revoke)
