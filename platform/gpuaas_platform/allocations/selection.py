"""Pure: node selection: choose the region for a request, or explain why no region can serve it.

All nodes of a request are in one region, because its machines work together. Of the regions with enough free nodes, the
one with the fewest free nodes is chosen, so that the largest group stays free for larger requests. In that region the
smallest nodes are chosen first (GPUs, CPUs, memory), among equal ones those that the project used before, then by name.
The same input always gives the same result.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gpuaas_contract import errors
from gpuaas_contract.capacity import CreateAllocation

from gpuaas_platform.nodes.rules import FreeNodes, NodeSummary
from gpuaas_platform.policy import rules as policy_rules

_LEFT_OUT = {
    "name": "with another name",
    "sku": "of another SKU",
    "region": "in another region",
    "policy": "refused by policy",
    "cordoned": "cordoned",
    "draining": "draining",
    "lost": "lost",
    "allocated": "allocated",
    "used": "not sanitised since another project used them",
    "sanitising": "being sanitised",
    "quarantined": "quarantined",
}
"""Reason why nodes were left out -> its text after the number of nodes, in an error message."""
_SANITISE = "Nodes that a project used must be sanitised first: gpuaas node list, gpuaas node get NODE"


class Place(NamedTuple):
    """The place that serves a request: a region, and its SKUs that policy allows."""

    region: str
    skus: list[str]


class WhyNot(NamedTuple):
    """The first reason why a node cannot be used. `sentence` is for callers who may see nodes."""

    reason: str
    sentence: str


def check_policy(layers: policy_rules.Layers, wanted: CreateAllocation, present: int) -> None:
    """Refuse a request that policy forbids on all nodes: by its region, its SKU or the number of allocations."""
    if wanted.region:
        policy_rules.check(layers, "region", wanted.region)
    if wanted.sku:
        policy_rules.check(layers, "sku", wanted.sku)
    policy_rules.check_limit(layers, "allocations_max", present=present, asked=wanted.count)


def choose_place(free: Sequence[FreeNodes], count: int, layers: policy_rules.Layers = ()) -> Place | None:
    """Return the region, with its SKUs, that has `count` free nodes or more; None if there is none."""
    regions: dict[str, list[FreeNodes]] = defaultdict(list)
    for group in free:
        if not _refused(group.region, group.sku, layers):
            regions[group.region].append(group)
    sizes = {region: sum(group.nodes for group in groups) for region, groups in regions.items()}
    enough = [region for region, size in sizes.items() if size >= count]
    if not enough:
        return None
    tightest = min(enough, key=lambda region: (sizes[region], region))
    return Place(tightest, sorted(group.sku for group in regions[tightest]))


def refusal(
    nodes: Sequence[NodeSummary], wanted: CreateAllocation, layers: policy_rules.Layers = (), *, names_nodes: bool
) -> errors.NoCapacity:
    """Return the error for a request that no region can serve. Only callers who may see nodes get their names."""
    reasons = {node.name: why_not(node, wanted, layers) for node in nodes}
    left_out = {name: reason for name, reason in reasons.items() if reason is not None}
    fitting = dict(sorted(Counter(node.region for node in nodes if reasons[node.name] is None).items()))
    counted = dict(sorted(Counter(reason.reason for reason in left_out.values()).items()))
    details: dict[str, object] = {"asked": wanted.count, "fitting": fitting, "reasons": counted}
    if names_nodes:
        details["why_not"] = {name: reason.sentence for name, reason in left_out.items()}
    left_out_for = ", ".join(f"{count} {_LEFT_OUT[reason]}" for reason, count in counted.items())
    others = f"Left out: {left_out_for}" if counted else "No other node is enrolled"
    fix = _SANITISE if names_nodes and counted.keys() & {"used", "quarantined"} else ""
    return errors.NoCapacity(f"{_fit(wanted.count, fitting)}. {others}.", details=details, fix=fix)


def why_not(node: NodeSummary, wanted: CreateAllocation, layers: policy_rules.Layers) -> WhyNot | None:
    if wanted.node_name and node.name != wanted.node_name:
        return WhyNot("name", "the request names another node")
    if wanted.sku and node.sku != wanted.sku:
        return WhyNot("sku", f"its SKU is {node.sku}")
    if wanted.region and node.region != wanted.region:
        return WhyNot("region", f"it is in {node.region}")
    refused = _refused(node.region, node.sku, layers)
    if refused:
        return WhyNot("policy", refused)
    if node.admin_state != "active":
        return WhyNot(node.admin_state, f"it is {node.admin_state}")
    if node.tenancy in ("sanitising", "quarantined"):  # before `lost`: the machine is off while it is reinstalled
        return WhyNot(node.tenancy, f"it is {_LEFT_OUT[node.tenancy]}")
    if node.status != "ready":
        return WhyNot(node.status, f"it is {node.status}")
    if node.is_allocated:
        return WhyNot("allocated", "it is allocated")
    return None if node.is_open else WhyNot("used", "the node was not sanitised since another project used it")


def _refused(region: str, sku: str, layers: policy_rules.Layers) -> str:
    verdicts = policy_rules.verdict(layers, "region", region), policy_rules.verdict(layers, "sku", sku)
    return next((verdict.rule for verdict in verdicts if not verdict.allowed), "")


def _fit(asked: int, fitting: dict[str, int]) -> str:
    if not fitting:
        return "No node fits"
    counted = ", ".join(f"{count} in {region}" for region, count in fitting.items())
    return f"{asked} nodes in one region were asked for, and what fits is {counted}"
