"""Pure: where a request for nodes is served, and how a request is refused that nothing can serve.

One request is served from one region, because its machines are meant to work together. Of the regions with enough free
nodes, the one with the fewest is taken, so that the largest group stays whole for larger requests. In it the smallest
nodes go first (GPUs, then CPUs, then memory), and equals by name. The same facts give the same answer.
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
}
"""Reason why a node was left out -> its text for several nodes."""


class Place(NamedTuple):
    """Where a request is served: a region, and the SKUs in it that policy allows."""

    region: str
    skus: list[str]


class WhyNot(NamedTuple):
    """The first reason against a node. `sentence` is for callers who may see nodes."""

    reason: str
    sentence: str


def check_policy(layers: policy_rules.Layers, wanted: CreateAllocation, present: int) -> None:
    """Refuse what policy forbids on any node: a named region or SKU, or too many allocations."""
    if wanted.region:
        policy_rules.check(layers, "region", wanted.region)
    if wanted.sku:
        policy_rules.check(layers, "sku", wanted.sku)
    policy_rules.check_limit(layers, "allocations_max", present=present, asked=wanted.count)


def choose_place(free: Sequence[FreeNodes], count: int, layers: policy_rules.Layers = ()) -> Place | None:
    """Return where as many nodes are free as are wanted; None if there is no such region."""
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
    return errors.NoCapacity(f"{_fit(wanted.count, fitting)}. {others}.", details=details)


def why_not(node: NodeSummary, wanted: CreateAllocation, layers: policy_rules.Layers) -> WhyNot | None:
    if wanted.node_name and node.name != wanted.node_name:
        return WhyNot("name", "another node was asked for")
    if wanted.sku and node.sku != wanted.sku:
        return WhyNot("sku", f"its SKU is {node.sku}")
    if wanted.region and node.region != wanted.region:
        return WhyNot("region", f"it is in {node.region}")
    refused = _refused(node.region, node.sku, layers)
    if refused:
        return WhyNot("policy", refused)
    if node.admin_state != "active":
        return WhyNot(node.admin_state, f"it is {node.admin_state}")
    if node.status != "ready":
        return WhyNot(node.status, f"it is {node.status}")
    return WhyNot("allocated", "it is allocated") if node.is_allocated else None


def _refused(region: str, sku: str, layers: policy_rules.Layers) -> str:
    verdicts = policy_rules.verdict(layers, "region", region), policy_rules.verdict(layers, "sku", sku)
    return next((verdict.rule for verdict in verdicts if not verdict.allowed), "")


def _fit(asked: int, fitting: dict[str, int]) -> str:
    if not fitting:
        return "No node fits"
    counted = ", ".join(f"{count} in {region}" for region, count in fitting.items())
    return f"{asked} nodes in one region were asked for, and what fits is {counted}"
