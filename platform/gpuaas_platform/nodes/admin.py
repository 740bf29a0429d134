"""What operators do with nodes: classify, cordon, drain, retire. `nodes` has what the nodes themselves do."""

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation, Node, NodeDrain, SetNode
from gpuaas_contract.event_types import AllocationDraining
from gpuaas_contract.lifecycles import NodeAdminState

from gpuaas_platform.allocations import store
from gpuaas_platform.call import Call, Origin
from gpuaas_platform.identity.tokens import store as token_store
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import rules as node_rules
from gpuaas_platform.nodes import service as nodes
from gpuaas_platform.nodes import store as node_store
from gpuaas_platform.record import service as record


async def node(reader: db.Reader, node_id: str) -> Node:
    """By id, or by the name of a node that is not retired."""
    found = await store.NODES.get(reader, node_id) or await store.node_named(reader, node_id)
    if found is None:
        raise errors.NotFound(f"There is no node {node_id}.")
    return found


async def classify(tx: db.Tx, call: Call, node_id: str, wanted: SetNode) -> Node:
    before = await node(tx, node_id)
    call.details["reason"] = wanted.reason
    return await _save(tx, call.origin, before, node_rules.classified(before, wanted), wanted.reason)


async def move(tx: db.Tx, call: Call, node_id: str, admin_state: NodeAdminState, reason: str) -> Node:
    call.details["reason"] = reason
    return await set_admin_state(tx, call.origin, node_id, admin_state, reason)


async def set_admin_state(tx: db.Tx, origin: Origin, node_id: str, admin_state: NodeAdminState, reason: str) -> Node:
    """Also for the platform's own reasons: a node that could not be cleaned is cordoned."""
    before = await node(tx, node_id)
    return await _save(tx, origin, before, node_rules.move(before, admin_state, reason), reason)


async def drain(tx: db.Tx, call: Call, node_id: str, reason: str) -> NodeDrain:
    """Cordoned, and the owners of what is on it are told; asked again, they are reminded."""
    draining = await move(tx, call, node_id, "draining", reason)
    present = await node_store.allocations_on(tx, draining.node_id)
    for allocation in present:
        await _ask_to_move(tx, call.origin, allocation, reason)
    return NodeDrain(node=draining, allocations=[node_rules.shown(allocation) for allocation in present])


async def retire(tx: db.Tx, call: Call, node_id: str, reason: str) -> Node:
    """From the next call on the node is nobody: its key and its tokens go in this transaction."""
    before = await node(tx, node_id)
    node_rules.may_retire(before, await node_store.allocations_on(tx, before.node_id))
    retired = await move(tx, call, before.node_id, "retired", reason)
    await node_store.forget_node_key(tx, retired.node_id)
    await token_store.end_tokens_of(tx, retired.node_id)
    return retired


async def _save(tx: db.Tx, origin: Origin, before: Node, after: Node, reason: str) -> Node:
    if after != before:
        await store.NODES.save(tx, after)
        await nodes.tell(tx, origin, after, reason)
    return after


async def _ask_to_move(tx: db.Tx, origin: Origin, allocation: Allocation, reason: str) -> None:
    payload = AllocationDraining(allocation_id=allocation.allocation_id, node_name=allocation.node_name, reason=reason)
    await record.emit(
        tx,
        origin,
        "capacity.allocation.draining",
        payload,
        org_id=allocation.org_id,
        project_id=allocation.project_id,
    )
