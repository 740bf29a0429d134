"""Drain and retire nodes, and list their allocations for operators."""

from collections.abc import Sequence

from gpuaas_contract.capacity import Allocation, ChangeNode, Node, NodeAllocation, NodeAllocations, NodeDrain
from gpuaas_contract.event_types import AllocationDraining
from gpuaas_contract.paths import NodePath

from gpuaas_platform.allocations import rules, store
from gpuaas_platform.call import Call
from gpuaas_platform.kit import db, structs
from gpuaas_platform.nodes import enrolment
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.record import service as record


async def drain(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> NodeDrain:
    """Drain the node and emit an event that asks the owner of each allocation to move. A repeat emits it again."""
    draining = await nodes.change_admin_state(tx, call, body, "draining")
    allocations = await store.on_node(tx, draining.node_id)
    for allocation in allocations:
        payload = structs.pick(AllocationDraining, allocation, reason=body.reason)
        await record.emit(tx, call.origin, "capacity.allocation.draining", payload, allocation)
    return NodeDrain(node=draining, allocations=_shown(allocations))


async def retire(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> Node:
    """Retire a node that has no allocation. Its key and its tokens become invalid in the same transaction."""
    node = await nodes.get(tx, call)
    rules.check_retire(node, await store.on_node(tx, node.node_id))
    retired = await nodes.change_admin_state(tx, call, body, "retired")
    await enrolment.withdraw(tx, retired.node_id)
    return retired


async def list_allocations(reader: db.Reader, call: Call[NodePath]) -> NodeAllocations:
    node = await nodes.get(reader, call)
    return NodeAllocations(items=_shown(await store.on_node(reader, node.node_id)))


def _shown(allocations: Sequence[Allocation]) -> list[NodeAllocation]:
    """Return the fields of allocations that operators of nodes may see."""
    return [structs.pick(NodeAllocation, allocation) for allocation in allocations]
