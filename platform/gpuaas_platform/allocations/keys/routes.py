"""People's SSH keys, and whose are on an allocation, over HTTP."""

from gpuaas_contract import ssh_keys
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.allocations.keys import service
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.write(ssh_keys.SSH_KEY_CREATE)
async def add_ssh_key(call: Call, tx: db.Tx, body: ssh_keys.AddSshKey) -> ssh_keys.SshKey:
    return await service.add(tx, call, body)


@routes.read(ssh_keys.SSH_KEY_LIST)
async def list_ssh_keys(call: Call, reader: db.Reader) -> Page[ssh_keys.SshKey]:
    return await service.list_keys(reader, call)


@routes.write(ssh_keys.SSH_KEY_DELETE)
async def delete_ssh_key(call: Call, tx: db.Tx, body: NoBody) -> ssh_keys.SshKey:
    return await service.delete(tx, call, body)


@routes.read(ssh_keys.ALLOCATION_KEYS_GET)
async def keys_of_allocation(call: Call, reader: db.Reader) -> ssh_keys.AllocationKeys:
    return await service.get(reader, call)


@routes.write(ssh_keys.ALLOCATION_KEYS_SET)
async def set_people_of_allocation(
    call: Call, tx: db.Tx, body: ssh_keys.SetAllocationPeople
) -> ssh_keys.AllocationKeys:
    return await service.choose(tx, call, body)
