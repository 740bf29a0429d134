"""Pure: which node fits, how an allocation moves, what a node must be told."""

import hashlib
from collections.abc import Sequence

import msgspec
from gpuaas_contract import errors, lifecycles
from gpuaas_contract.capacity import Allocation, CreateAllocation, Node
from gpuaas_contract.lifecycles import AllocationStatus

from gpuaas_platform.policy import rules as policy_rules


def check_policy(layers: policy_rules.Layers, wanted: CreateAllocation, present: int) -> None:
    """What policy refuses whichever node is chosen: a region or SKU asked for by name, one allocation too many."""
    if wanted.region:
        policy_rules.check(layers, "region", wanted.region)
    if wanted.sku:
        policy_rules.check(layers, "sku", wanted.sku)
    policy_rules.check_limit(layers, "allocations_max", present=present, asked=1)


def choose_node(nodes: Sequence[Node], wanted: CreateAllocation, layers: policy_rules.Layers = ()) -> Node:
    """The first free node that fits and that policy allows, by name; otherwise say of each node why not."""
    why_not = {node.name: _why_not(node, wanted, layers) for node in nodes}
    for node in sorted(nodes, key=lambda node: node.name):
        if not why_not[node.name]:
            return node
    raise errors.NoCapacity(
        "No node fits: " + ("; ".join(f"{name}: {why}" for name, why in why_not.items()) or "no node is enrolled"),
        details={"why_not": why_not},
    )


def _why_not(node: Node, wanted: CreateAllocation, layers: policy_rules.Layers) -> str:
    if wanted.node_name and node.name != wanted.node_name:
        return "another node was asked for"
    if wanted.sku and node.sku != wanted.sku:
        return f"its SKU is {node.sku}"
    if wanted.region and node.region != wanted.region:
        return f"it stands in {node.region}"
    refused = _refused(node, layers)
    if refused:
        return refused
    if node.status != "ready":
        return f"it is {node.status}"
    if node.allocation_id is not None:
        return "it is allocated"
    return ""


def _refused(node: Node, layers: policy_rules.Layers) -> str:
    found = policy_rules.verdict(layers, "region", node.region), policy_rules.verdict(layers, "sku", node.sku)
    return next((verdict.rule for verdict in found if not verdict.allowed), "")


def username(allocation_id: str) -> str:
    """A Unix user of this allocation's own, within 32 characters."""
    return "gpu-" + hashlib.sha256(allocation_id.encode()).hexdigest()[:12]


def move(allocation: Allocation, status: AllocationStatus, reason: str = "") -> Allocation:
    if not lifecycles.may_move(lifecycles.ALLOCATION, allocation.status, status):
        raise errors.Conflict(f"The allocation is {allocation.status}; it cannot become {status} now.")
    return msgspec.structs.replace(allocation, status=status, status_reason=reason)


def after_task(task_type: str, succeeded: bool) -> AllocationStatus:
    """What a finished node task means for the allocation it served."""
    outcomes: dict[tuple[str, bool], AllocationStatus] = {
        ("allocation.provision", True): "active",
        ("allocation.provision", False): "failed",
        ("allocation.release", True): "released",
        ("allocation.release", False): "release_failed",
    }
    return outcomes[task_type, succeeded]


def may_release(allocation: Allocation) -> None:
    if allocation.used_by_instance_ids:
        users = ", ".join(allocation.used_by_instance_ids)
        raise errors.Conflict(
            f"An app instance uses this allocation: {users}.",
            details={"instance_ids": allocation.used_by_instance_ids},
            fix=f"gpuaas decommission {allocation.used_by_instance_ids[0]}",
        )
