"""People's SSH keys, and whose are on an allocation, over HTTP."""

from gpuaas_contract import ssh_keys

from gpuaas_platform.allocations.keys import service
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(ssh_keys.SSH_KEY_CREATE, service.add)
routes.read(ssh_keys.SSH_KEY_LIST, service.list_keys)
routes.write(ssh_keys.SSH_KEY_DELETE, service.delete)
routes.read(ssh_keys.ALLOCATION_KEYS_GET, service.get)
routes.write(ssh_keys.ALLOCATION_KEYS_SET, service.choose)
