"""Allocations over HTTP."""

from gpuaas_contract import capacity
from gpuaas_contract.wire import NoBody, Page

from gpuaas_platform.allocations import release as allocation_release
from gpuaas_platform.allocations import service, store
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.authorised_write(capacity.ALLOCATION_CREATE, service.check_place)
async def create_allocations(call: Call, tx: db.Tx, body: capacity.CreateAllocation) -> capacity.Allocations:
    return await service.create(tx, call, body)


@routes.read(capacity.ALLOCATION_LIST)
async def list_allocations(call: Call, reader: db.Reader) -> Page[capacity.Allocation]:
    where, values = store.allocation_filter(call.params["project_id"], call.query)
    return await call.page(reader, store.ALLOCATIONS, where, *values)


@routes.read(capacity.ALLOCATION_GET)
async def get_allocation(call: Call, reader: db.Reader) -> capacity.Allocation:
    return await service.in_project(reader, call.params["project_id"], call.params["allocation_id"])


@routes.write(capacity.ALLOCATION_RELEASE)
async def release_allocation(call: Call, tx: db.Tx, _: NoBody) -> capacity.Allocation:
    return await allocation_release.release(tx, call, call.params["allocation_id"])


@routes.write(capacity.ALLOCATION_RELEASE_USED)
async def release_used_allocation(call: Call, tx: db.Tx, body: capacity.OverrideRelease) -> capacity.Allocation:
    return await allocation_release.release_used(tx, call, call.params["allocation_id"], body.reason)


@routes.write(capacity.ALLOCATION_FORCE_RELEASE)
async def force_release_allocation(call: Call, tx: db.Tx, body: capacity.OverrideRelease) -> capacity.Allocation:
    return await allocation_release.force_release(tx, call, call.params["allocation_id"], body.reason)
