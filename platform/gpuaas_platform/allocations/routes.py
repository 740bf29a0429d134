"""Allocations over HTTP."""

from gpuaas_contract import capacity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.allocations import release, service
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.authorised_write(capacity.ALLOCATION_CREATE, service.check_place)
async def create_allocations(call: Call, tx: db.Tx, body: capacity.CreateAllocation) -> capacity.Allocations:
    return await service.create(tx, call, body)


@routes.read(capacity.ALLOCATION_LIST)
async def list_allocations(call: Call, reader: db.Reader) -> Page[capacity.Allocation]:
    return await service.list_allocations(reader, call)


@routes.read(capacity.ALLOCATION_GET)
async def get_allocation(call: Call, reader: db.Reader) -> capacity.Allocation:
    return await service.get(reader, call)


@routes.write(capacity.ALLOCATION_RELEASE)
async def release_allocation(call: Call, tx: db.Tx, body: NoBody) -> capacity.Allocation:
    return await release.release(tx, call, body)


@routes.write(capacity.ALLOCATION_RELEASE_USED)
async def release_used_allocation(call: Call, tx: db.Tx, body: capacity.OverrideRelease) -> capacity.Allocation:
    return await release.release_used(tx, call, body)


@routes.write(capacity.ALLOCATION_FORCE_RELEASE)
async def force_release_allocation(call: Call, tx: db.Tx, body: capacity.OverrideRelease) -> capacity.Allocation:
    return await release.force_release(tx, call, body)
