"""Routes of service accounts and their keys. `catalog` has those that decide about an account's apps."""

from gpuaas_contract import identity, org_accounts

from gpuaas_platform.call import Routes
from gpuaas_platform.identity.accounts import acceptances, service

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

routes.read(org_accounts.LIST, service.list_accounts)
routes.read(org_accounts.GET, service.get)
routes.write(org_accounts.DISABLE, acceptances.disable_account)
routes.write(org_accounts.ENABLE, service.enable)
routes.write(org_accounts.DELETE, acceptances.delete_account)
routes.write(org_accounts.KEY_CREATE, service.create_key)
routes.read(org_accounts.KEY_LIST, service.list_keys)
routes.write(org_accounts.KEY_ROTATE, service.rotate_key)
routes.write(org_accounts.KEY_REVOKE, service.revoke_key)

routes.write(org_accounts.DISMISS, acceptances.dismiss)
routes.read(org_accounts.ACCEPTED_LIST, acceptances.list_accepted)
