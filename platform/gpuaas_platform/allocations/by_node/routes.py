"""Nodes together with the allocations on them, over HTTP."""

from gpuaas_contract import capacity

from gpuaas_platform.allocations.by_node import service
from gpuaas_platform.call import Call, Routes
from gpuaas_platform.kit import db

routes = Routes()


@routes.write(capacity.NODE_DRAIN)
async def drain_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.NodeDrain:
    return await service.drain(tx, call, body)


@routes.write(capacity.NODE_RETIRE)
async def retire_node(call: Call, tx: db.Tx, body: capacity.ChangeNode) -> capacity.Node:
    return await service.retire(tx, call, body)


@routes.read(capacity.NODE_ALLOCATIONS)
async def allocations_of_node(call: Call, reader: db.Reader) -> capacity.NodeAllocations:
    return await service.list_allocations(reader, call)
