"""Pure: which nodes a request gets, and what to say when there are not enough.

One request is served from one region: its machines are meant to work together. Of the regions that can carry it, the
one where the fewest nodes fit is taken, so that the largest group stays whole for whoever asks for many; in it the
smallest nodes go first (GPUs, then CPUs, then memory), and equals by name. The same facts give the same answer.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from gpuaas_contract import errors
from gpuaas_contract.capacity import CreateAllocation, Node

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
"""Why a node was left out -> how it is said of several."""


class WhyNot(NamedTuple):
    """The first thing that speaks against a node; `sentence` is for those who may see nodes."""

    reason: str
    sentence: str


def check_policy(layers: policy_rules.Layers, wanted: CreateAllocation, present: int) -> None:
    """What policy refuses whichever nodes are chosen: a region or SKU asked for by name, allocations too many."""
    if wanted.region:
        policy_rules.check(layers, "region", wanted.region)
    if wanted.sku:
        policy_rules.check(layers, "sku", wanted.sku)
    policy_rules.check_limit(layers, "allocations_max", present=present, asked=wanted.count)


def choose(
    nodes: Sequence[Node], wanted: CreateAllocation, layers: policy_rules.Layers = (), *, names_nodes: bool = False
) -> list[Node]:
    """As many nodes as are wanted; or `no_capacity`, which names nodes only to those who may see them."""
    left_out = {node.name: why for node in nodes if (why := why_not(node, wanted, layers)) is not None}
    regions: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        if node.name not in left_out:
            regions[node.region].append(node)
    carrying = [found for found in regions.values() if len(found) >= wanted.count]
    if not carrying:
        fitting = {region: len(found) for region, found in sorted(regions.items())}
        raise _no_capacity(wanted.count, fitting, left_out, names_nodes=names_nodes)
    tightest = min(carrying, key=lambda found: (len(found), found[0].region))
    return sorted(tightest, key=_size)[: wanted.count]


def why_not(node: Node, wanted: CreateAllocation, layers: policy_rules.Layers) -> WhyNot | None:
    if wanted.node_name and node.name != wanted.node_name:
        return WhyNot("name", "another node was asked for")
    if wanted.sku and node.sku != wanted.sku:
        return WhyNot("sku", f"its SKU is {node.sku}")
    if wanted.region and node.region != wanted.region:
        return WhyNot("region", f"it stands in {node.region}")
    refused = _refused(node, layers)
    if refused:
        return WhyNot("policy", refused)
    if node.admin_state != "active":
        return WhyNot(node.admin_state, f"it is {node.admin_state}")
    if node.status != "ready":
        return WhyNot(node.status, f"it is {node.status}")
    if node.allocation_id is not None:
        return WhyNot("allocated", "it is allocated")
    return None


def _refused(node: Node, layers: policy_rules.Layers) -> str:
    found = policy_rules.verdict(layers, "region", node.region), policy_rules.verdict(layers, "sku", node.sku)
    return next((verdict.rule for verdict in found if not verdict.allowed), "")


def _size(node: Node) -> tuple[int, int, int, str]:
    return len(node.facts.gpus), node.facts.cpus, node.facts.memory_mb, node.name


def _no_capacity(
    asked: int, fitting: dict[str, int], left_out: dict[str, WhyNot], *, names_nodes: bool
) -> errors.NoCapacity:
    reasons = dict(sorted(Counter(found.reason for found in left_out.values()).items()))
    details: dict[str, object] = {"asked": asked, "fitting": fitting, "reasons": reasons}
    if names_nodes:
        details["why_not"] = {name: found.sentence for name, found in left_out.items()}
    return errors.NoCapacity(f"{_fit(asked, fitting)}. {_left_out(reasons)}.", details=details)


def _fit(asked: int, fitting: dict[str, int]) -> str:
    if not fitting:
        return "No node fits"
    found = ", ".join(f"{count} in {region}" for region, count in fitting.items())
    return f"{asked} nodes in one region were asked for, and what fits is {found}"


def _left_out(reasons: dict[str, int]) -> str:
    counted = ", ".join(f"{count} {_LEFT_OUT[reason]}" for reason, count in reasons.items())
    return f"Left out: {counted}" if counted else "No other node is enrolled"
