"""HTTP routes of allocations, of people and their SSH keys, and of draining and retiring nodes."""

from gpuaas_contract import capacity, posix, ssh_keys

from gpuaas_platform.allocations import by_node, release, service
from gpuaas_platform.allocations.keys import service as keys
from gpuaas_platform.allocations.people import service as people
from gpuaas_platform.call import Routes

routes = Routes()
routes.write(capacity.ALLOCATION_CREATE, service.create, authorise=service.check_place)
routes.read(capacity.ALLOCATION_LIST, service.list_allocations)
routes.read(capacity.ALLOCATION_GET, service.get)
routes.write(capacity.ALLOCATION_RELEASE, release.release)
routes.write(capacity.ALLOCATION_RELEASE_USED, release.release_used)
routes.write(capacity.ALLOCATION_FORCE_RELEASE, release.force_release)
routes.write(capacity.NODE_DRAIN, by_node.drain)
routes.write(capacity.NODE_RETIRE, by_node.retire)
routes.read(capacity.NODE_ALLOCATIONS, by_node.list_allocations)

routes.write(ssh_keys.SSH_KEY_CREATE, keys.add)
routes.read(ssh_keys.SSH_KEY_LIST, keys.list_keys)
routes.write(ssh_keys.SSH_KEY_DELETE, keys.delete)
routes.read(ssh_keys.ALLOCATION_KEYS_GET, keys.get)
routes.write(ssh_keys.ALLOCATION_KEYS_SET, keys.choose)

routes.read(posix.POSIX_PEOPLE, people.list_people)
routes.flow(posix.POSIX_PEOPLE_DIGEST, people.wait_for_change)
