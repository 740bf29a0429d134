"""HTTP routes of the catalog, and those that depend on the permissions that apps declare: `can-i`, accounts of apps.

`artifacts.routes` has the routes that compare app versions with artifacts and trust keys."""

from gpuaas_contract import catalog, conformance, entitlement_requests, identity, org_accounts, policy

from gpuaas_platform.call import Routes
from gpuaas_platform.catalog import accounts, cards, permissions, requests, service

routes = Routes()
routes.write(catalog.VERSION_DEPRECATE, service.deprecate)
routes.write(catalog.VERSION_WITHDRAW, service.withdraw)
routes.read(catalog.VERSION_LIST, service.list_versions)
routes.read(catalog.APP_VERSION_LIST, service.list_app_versions)
routes.read(catalog.VERSION_GET, service.get_version)
routes.read(catalog.PROJECT_APP_LIST, service.list_project_apps)
routes.read(catalog.PROJECT_APP_GET, service.get_project_app)
routes.read(conformance.CARD_GET, cards.get)
routes.read(conformance.PROJECT_CARD_GET, cards.get_in_project)
routes.write(catalog.ENTITLEMENT_SET, service.set_entitlement, authorise=service.check_person)
routes.read(catalog.ENTITLEMENT_LIST, service.list_entitlements)
routes.read(catalog.ENTITLEMENT_GET, service.get_entitlement)
routes.write(entitlement_requests.ENTITLEMENT_REQUEST_CREATE, requests.create, authorise=requests.check_person)
routes.read(entitlement_requests.ENTITLEMENT_REQUEST_LIST, requests.list_requests)
routes.read(entitlement_requests.ENTITLEMENT_REQUEST_GET, requests.get)
routes.write(entitlement_requests.ENTITLEMENT_REQUEST_REFUSE, requests.refuse)
routes.read(entitlement_requests.OFFER_LIST, requests.offers)
routes.flow(policy.CAN_I, permissions.can_i)
routes.write(identity.SERVICE_ACCOUNT_CREATE, accounts.create)
routes.write(identity.SERVICE_ACCOUNT_BIND, accounts.bind)
routes.write(org_accounts.CREATE, accounts.create_in_org)
routes.write(org_accounts.BIND, accounts.bind_in_org)
routes.write(org_accounts.ACCEPT, accounts.accept)
