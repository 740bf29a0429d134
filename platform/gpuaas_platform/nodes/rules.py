"""Pure: what an operator may do with a node, and what of a heartbeat is news."""

from collections import Counter
from collections.abc import Sequence

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation, Facts, Node, NodeAllocation, SetNode
from gpuaas_contract.lifecycles import NodeAdminState
from gpuaas_contract.node import NodeStatusReport


def move(node: Node, admin_state: NodeAdminState, reason: str) -> Node:
    if not lifecycles.may_move(lifecycles.NODE_ADMIN, node.admin_state, admin_state):
        raise errors.Conflict(
            f"Node {node.name} is {node.admin_state}; it cannot become {admin_state}.",
            fix="Enrol the machine again to use it: gpuaas node token",
        )
    if node.admin_state == admin_state:
        return node
    return msgspec.structs.replace(node, admin_state=admin_state, admin_reason=reason, revision=node.revision + 1)


def classified(node: Node, wanted: SetNode) -> Node:
    if node.admin_state == "retired":
        raise errors.Conflict(f"Node {node.name} is retired; nothing of it changes any more.")
    if (node.sku, node.region) == (wanted.sku, wanted.region):
        return node
    return msgspec.structs.replace(node, sku=wanted.sku, region=wanted.region, revision=node.revision + 1)


def may_retire(node: Node, present: Sequence[Allocation]) -> None:
    if present:
        named = ", ".join(f"{found.allocation_id} ({found.status}) of {found.project_id}" for found in present)
        raise errors.Conflict(
            f"Node {node.name} still carries {named}.",
            details={"allocation_ids": [found.allocation_id for found in present]},
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


def heard(node: Node, report: NodeStatusReport, address: str) -> Node:
    """The node as its heartbeat describes it. An agent on trial shows that the node lives, and no more."""
    if report.trial:
        return msgspec.structs.replace(node, status="ready")
    return msgspec.structs.replace(
        node,
        status="ready",
        facts=report.facts,
        gpus_by_type=gpus_by_type(report.facts),
        address=address,
        agent_version=report.agent_version,
        agent_sha256=report.agent_sha256,
        boot_id=report.boot_id,
    )


def gpus_by_type(facts: Facts) -> dict[str, int]:
    return dict(sorted(Counter(gpu.type for gpu in facts.gpus).items()))


def news(before: Node, after: Node) -> str:
    """What of a heartbeat others should hear of; empty for the steady rest."""
    changes = []
    if before.status != after.status:
        changes.append("it is heard again")
    if before.boot_id and before.boot_id != after.boot_id:
        changes.append("it was booted anew")
    if before.agent_version and before.agent_version != after.agent_version:
        changes.append(f"its agent went from {before.agent_version} to {after.agent_version}")
    if before.address != after.address:
        changes.append(f"its address went from {before.address} to {after.address}")
    if before.gpus_by_type != after.gpus_by_type:
        changes.append(f"its GPUs were {_counted(before.gpus_by_type)} and are {_counted(after.gpus_by_type)}")
    return "; ".join(changes)


def _counted(gpus: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in gpus.items()) or "none"
