"""Access credentials over HTTP."""

from gpuaas_contract import credentials

from gpuaas_platform.access.credentials import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.flow(credentials.CREDENTIAL_CREATE, service.create)
routes.read(credentials.CREDENTIAL_LIST, service.list_credentials)
routes.read(credentials.CREDENTIAL_GET, service.get)
routes.flow(credentials.CREDENTIAL_ROTATE, service.rotate)
routes.write(credentials.CREDENTIAL_REVOKE, service.revoke)
routes.write(credentials.CREDENTIAL_DELIVER, service.deliver, prepare=service.check_custody)
routes.flow(credentials.CREDENTIAL_OPEN, service.open_delivery)
