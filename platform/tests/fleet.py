"""Many nodes at once, put into the store as copies of one that enrolled: enrolling hundreds takes too long."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract.capacity import Allocation, Node
from gpuaas_platform.allocations import store as allocations_store
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import store as nodes_store
from platform_world import World


async def copy_node(world: World, name: str, count: int) -> list[Node]:
    """`count` more nodes like the one of this name."""
    (original,) = await nodes_store.NODES.find(world.site.database.reader, "name = $1", name)
    copies = [
        msgspec.structs.replace(original, node_id=f"{original.node_id}x{number}", name=f"{name}-{number:04}")
        for number in range(count)
    ]

    async def use_case(tx: db.Tx) -> None:
        for node in copies:
            await nodes_store.NODES.insert(tx, node)

    await world.site.database.write(use_case)
    return copies


async def allocate(world: World, allocation: Allocation, nodes: Sequence[Node]) -> list[Allocation]:
    """An allocation like this one on each of the nodes."""
    copies = [
        msgspec.structs.replace(
            allocation,
            allocation_id=f"{allocation.allocation_id}x{number}",
            node_id=node.node_id,
            node_name=node.name,
        )
        for number, node in enumerate(nodes)
    ]

    async def use_case(tx: db.Tx) -> None:
        for node, copy in zip(nodes, copies, strict=True):
            await allocations_store.ALLOCATIONS.insert(tx, copy)
            held = msgspec.structs.replace(node, allocation_id=copy.allocation_id)
            await nodes_store.NODES.change(tx, node, held)

    await world.site.database.write(use_case)
    return copies
