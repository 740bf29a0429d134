"""Routes of service accounts and their keys. `catalog` has those that decide about an account's apps."""

from gpuaas_contract import identity

from gpuaas_platform.call import Routes
from gpuaas_platform.identity.accounts import service

routes = Routes()
routes.read(identity.SERVICE_ACCOUNT_LIST, service.list_accounts)
routes.read(identity.SERVICE_ACCOUNT_GET, service.get)
routes.write(identity.SERVICE_ACCOUNT_DISABLE, service.disable)
routes.write(identity.SERVICE_ACCOUNT_ENABLE, service.enable)
routes.write(identity.SERVICE_ACCOUNT_DELETE, service.delete)
routes.write(identity.SERVICE_ACCOUNT_KEY_CREATE, service.create_key)
routes.read(identity.SERVICE_ACCOUNT_KEY_LIST, service.list_keys)
routes.write(identity.SERVICE_ACCOUNT_KEY_ROTATE, service.rotate_key)
routes.write(identity.SERVICE_ACCOUNT_KEY_REVOKE, service.revoke_key)
