"""Pure: whether a node may be retired, and an allocation as operators of nodes see it."""

from collections.abc import Sequence

from gpuaas_contract import errors
from gpuaas_contract.capacity import Allocation, Node, NodeAllocation


def check_retire(node: Node, allocations: Sequence[Allocation]) -> None:
    if allocations:
        named = ", ".join(f"{held.allocation_id} ({held.status}) of {held.project_id}" for held in allocations)
        raise errors.Conflict(
            f"Node {node.name} still carries {named}.",
            details={"allocation_ids": [held.allocation_id for held in allocations]},
            fix=f"gpuaas node drain {node.name}, wait for its owner to release it, then retire it.",
        )


def shown(allocation: Allocation) -> NodeAllocation:
    return NodeAllocation(
        allocation_id=allocation.allocation_id,
        org_id=allocation.org_id,
        project_id=allocation.project_id,
        status=allocation.status,
        requested_by=allocation.requested_by,
        used_by_instance_ids=allocation.used_by_instance_ids,
    )
