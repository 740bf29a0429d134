"""Routes of users and role bindings."""

from gpuaas_contract import bindings as contract
from gpuaas_contract import posix as contract_posix
from gpuaas_contract import users as people

from gpuaas_platform.call import Routes
from gpuaas_platform.identity.bindings import service as bindings
from gpuaas_platform.identity.posix import service as posix
from gpuaas_platform.identity.users import service as users

routes = Routes()
routes.write(people.USER_CREATE, users.create, prepare=users.prepare_create)
routes.read(people.USER_LIST, users.list_users)
routes.read(people.USER_GET, users.get)
routes.write(people.USER_DISABLE, users.disable)
routes.write(people.USER_ENABLE, users.enable)
routes.write(people.USER_SET_PASSWORD, users.set_password, prepare=users.prepare_password)
routes.write(people.MY_PASSWORD, users.change_own_password, prepare=users.prepare_own_password)

routes.write(contract.PLATFORM_BINDING_CREATE, bindings.create)
routes.write(contract.APP_BINDING_CREATE, bindings.create)
routes.read(contract.APP_BINDING_LIST, bindings.list_bindings)
routes.write(contract.APP_BINDING_DELETE, bindings.delete)
routes.write(contract.ORG_BINDING_CREATE, bindings.create)
routes.write(contract.PROJECT_BINDING_CREATE, bindings.create)
routes.read(contract.PLATFORM_BINDING_LIST, bindings.list_bindings)
routes.read(contract.ORG_BINDING_LIST, bindings.list_bindings)
routes.read(contract.PROJECT_BINDING_LIST, bindings.list_bindings)
routes.write(contract.PLATFORM_BINDING_DELETE, bindings.delete)
routes.write(contract.ORG_BINDING_DELETE, bindings.delete)
routes.write(contract.PROJECT_BINDING_DELETE, bindings.delete)
routes.write(contract.BREAK_GLASS_CREATE, bindings.take_break_glass)
routes.write(contract.BREAK_GLASS_END, bindings.end_break_glass)

routes.write(contract_posix.POSIX_IDENTITY_SET, posix.set_identity)
