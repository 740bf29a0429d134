"""Manage nodes for operators: list, classify, cordon, uncordon. Heartbeats are in `presence`, tasks in `tasks`."""

import datetime

from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation, ChangeNode, Node, NodeQuery, SetNode
from gpuaas_contract.event_types import NodeChanged
from gpuaas_contract.lifecycles import NodeAdminState
from gpuaas_contract.paths import NodePath, Path

from gpuaas_platform.call import PLATFORM, Call, Origin
from gpuaas_platform.kit import db, paging, structs
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.nodes import rules, store
from gpuaas_platform.nodes.facts import NodeMoved, NodeReinstalled
from gpuaas_platform.nodes.sanitise import rules as sanitise_rules
from gpuaas_platform.record import service as record

by_id, by_name = store.NODES.get, store.by_name
free, smallest_free, summaries, enrolled_ids = store.free, store.smallest_free, store.summaries, store.enrolled_ids
"""Functions with which other domains read nodes."""
SANITISE = "sanitise"
"""Topic that wakes the loop that sanitises nodes."""


async def list_nodes(reader: db.Reader, call: Call[Path, NodeQuery]) -> EncodedPage[Node]:
    where, values = store.list_filter(call.query)
    return await paging.encoded(reader, store.NODES, call.query, where, *values)


async def get(reader: db.Reader, call: Call[NodePath]) -> Node:
    """Return the node that the route names by id or, if it is not retired, by name."""
    id_or_name = call.path.node_id
    node = await store.NODES.get(reader, id_or_name) or await store.by_name(reader, id_or_name)
    if node is None:
        raise errors.NotFound(f"There is no node {id_or_name}.")
    return node


async def classify(tx: db.Tx, call: Call[NodePath], body: SetNode) -> Node:
    before = await get(tx, call)
    call.details["reason"] = body.reason
    return await save(tx, call.origin, before, rules.classified(before, body), body.reason)


async def cordon(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> Node:
    return await change_admin_state(tx, call, body, "cordoned")


async def uncordon(tx: db.Tx, call: Call[NodePath], body: ChangeNode) -> Node:
    return await change_admin_state(tx, call, body, "active")


async def change_admin_state(tx: db.Tx, call: Call[NodePath], body: ChangeNode, admin_state: NodeAdminState) -> Node:
    call.details["reason"] = body.reason
    return await set_admin_state(tx, call.origin, await get(tx, call), admin_state, body.reason)


async def set_admin_state(tx: db.Tx, origin: Origin, node: Node, admin_state: NodeAdminState, reason: str) -> Node:
    """Set the admin state. Operators do this, and the platform itself: it cordons a node that could not be cleaned."""
    return await save(tx, origin, node, rules.move(node, admin_state, reason), reason)


async def cordon_unallocated(tx: db.Tx, origin: Origin, reason: str) -> int:
    """Cordon the nodes that belong to no allocation, and have each sanitised before a project gets it.

    This is for a restore: since the backup, another project may have used them. Return how many there are."""
    unallocated = await store.unallocated(tx)
    for node in unallocated:
        after = rules.move(node, "cordoned", reason) if node.admin_state == "active" else node
        await save(tx, origin, node, sanitise_rules.used_by_unknown(after), reason)
    return len(unallocated)


async def admit(tx: db.Tx, call: Call, known: Node | None, enrolled: Node) -> None:
    """Save a node that enrolled. If it was known, run reactions: its disk is empty, its address may have changed."""
    if known is None:
        await store.insert(tx, enrolled)
    else:
        await store.save(tx, known, enrolled)
        if enrolled.allocation_id is not None:
            call.details["allocation_id"] = enrolled.allocation_id
        await react_to_move(tx, call, known, enrolled)
        await call.site.reactions.react(tx, NodeReinstalled(call.origin, enrolled))
    await announce(
        tx, call.origin, enrolled, "the node enrolled again with a new key" if known else "the node enrolled"
    )


async def react_to_move(tx: db.Tx, call: Call, before: Node, after: Node) -> None:
    if after.address != before.address:
        await call.site.reactions.react(tx, NodeMoved(call.origin, after))


async def assign(tx: db.Tx, node: Node, allocation: Allocation) -> None:
    """Record that the node belongs to the allocation, and that the allocation's project uses it."""
    await store.save(tx, node, sanitise_rules.assigned(node, allocation.allocation_id, allocation.project_id))


async def unassign(tx: db.Tx, node_id: str, allocation_id: str, now: datetime.datetime) -> None:
    """Make the node free for the same project, unless it belongs to another allocation by now."""
    node = await store.NODES.get(tx, node_id)
    if node is not None and node.allocation_id == allocation_id:
        await store.save(tx, node, sanitise_rules.released(node, now))
        tx.wake(SANITISE)


async def announce(tx: db.Tx, origin: Origin, changed: Node, reason: str) -> None:
    """Emit the event that a node changed."""
    payload = structs.pick(NodeChanged, changed, reason=reason)
    await record.emit(tx, origin, "capacity.node.changed", payload, PLATFORM)


async def save(tx: db.Tx, origin: Origin, before: Node, after: Node, reason: str) -> Node:
    """Save the node and emit an event with the reason, if it changed."""
    lifecycles.check_move(before.name, lifecycles.NODE_ADMIN, before.admin_state, after.admin_state)
    lifecycles.check_move(before.name, lifecycles.NODE_TENANCY, before.tenancy, after.tenancy)
    if after != before:
        await store.save(tx, before, after)
        await announce(tx, origin, after, reason)
    return after
