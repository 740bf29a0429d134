"""Which nodes a request gets, decided from facts alone; and what a refusal shows to which caller."""

from collections import Counter
from typing import Any

import pytest
from fleet import copy_node
from gpuaas_contract import capacity, errors
from gpuaas_contract import node as node_contract
from gpuaas_contract.capacity import CreateAllocation
from gpuaas_contract.policy import Choice, Overlay
from gpuaas_platform.allocations import selection
from gpuaas_platform.kit import db
from gpuaas_platform.nodes import store
from gpuaas_platform.nodes.rules import FreeNodes, NodeSummary
from platform_world import World


def node(name: str, **fields: Any) -> NodeSummary:
    ready = NodeSummary(name, region="eu", sku="standard", admin_state="active", status="ready", is_allocated=False)
    return ready._replace(**fields)


def place(summaries: list[NodeSummary], count: int = 1, layers: Any = ()) -> selection.Place | None:
    free = Counter((summary.region, summary.sku) for summary in summaries)
    return selection.choose_place([FreeNodes(*group, count) for group, count in free.items()], count, layers)


def refusal(summaries: list[NodeSummary], *, names_nodes: bool = False, **wanted: Any) -> errors.NoCapacity:
    return selection.refusal(summaries, CreateAllocation(**wanted), names_nodes=names_nodes)


EU = [node(f"eu-{number}") for number in range(3)]
US = [node(f"us-{number}", region="us") for number in range(2)]


@pytest.mark.parametrize(("count", "region"), [(1, "us"), (2, "us"), (3, "eu")])
def test_a_request_is_served_from_the_smallest_region_that_has_enough_nodes(count: int, region: str) -> None:
    assert place([*EU, *US], count) == selection.Place(region, ["standard"])


def test_a_request_that_no_region_can_serve_is_refused_with_what_fits() -> None:
    assert place([*EU, *US], 4) is None
    refused = refusal([*EU, *US], count=4)
    assert refused.details == {"asked": 4, "fitting": {"eu": 3, "us": 2}, "reasons": {}}
    assert "3 in eu, 2 in us" in refused.message


@pytest.mark.parametrize("shift", range(4))
def test_of_equal_regions_the_first_by_name_is_chosen_in_every_order_of_the_nodes(shift: int) -> None:
    equal = [*EU[:2], *US]
    assert place([*equal[shift:], *equal[:shift]], 2) == selection.Place("eu", ["standard"])


def test_the_refusal_counts_the_first_reason_against_each_node() -> None:
    summaries = [
        node("a", sku="old"),
        node("b", region="us"),
        node("c", admin_state="cordoned", status="lost"),
        node("d", status="lost", is_allocated=True),
        node("e", is_allocated=True),
        node("f", is_allocated=True),
    ]
    refused = refusal(summaries, sku="standard", region="eu")
    assert refused.details["reasons"] == {"allocated": 2, "cordoned": 1, "lost": 1, "region": 1, "sku": 1}
    assert "2 allocated" in refused.message


def test_only_callers_who_may_see_nodes_get_their_names() -> None:
    summaries = [node("secret-1", is_allocated=True), node("secret-2", admin_state="draining")]
    hidden = refusal(summaries)
    assert "secret" not in hidden.message + str(hidden.details)
    shown = refusal(summaries, names_nodes=True)
    assert shown.details["why_not"] == {"secret-1": "it is allocated", "secret-2": "it is draining"}


def test_a_node_that_is_asked_for_by_name_leaves_all_others_out() -> None:
    assert refusal([node("a"), node("b")], node_name="c").details["reasons"] == {"name": 2}


def test_what_policy_refuses_is_left_out() -> None:
    layers = [("org", Overlay(regions=Choice(deny=["us"])))]
    assert place([*EU, *US], 1, layers) == selection.Place("eu", ["standard"])


def test_skus_that_policy_refuses_are_not_taken_from_the_region() -> None:
    layers = [("org", Overlay(skus=Choice(deny=["big"])))]
    assert place([*EU, node("b", sku="big")], 1, layers) == selection.Place("eu", ["standard"])


def test_without_any_node_the_refusal_states_it() -> None:
    assert refusal([]).message == "No node fits. No other node is enrolled."


SIZES = {"e": (8, 4, 1000), "d": (0, 8, 1000), "c": (0, 4, 2000), "b": (0, 4, 1000), "a": (1, 4, 1000)}
"""Name -> GPUs, CPUs, memory."""


async def sized_fleet(world: World) -> None:
    for name, (gpus, cpus, memory_mb) in SIZES.items():
        gpu_node = await world.node(name)
        devices = [capacity.Gpu(index=index, type="big", device=f"/dev/nvidia{index}") for index in range(gpus)]
        facts = capacity.Facts(hostname=name, cpus=cpus, memory_mb=memory_mb, gpus=devices, addresses=["127.0.0.1"])
        report = node_contract.NodeStatusReport(agent_version="1", boot_id="b", facts=facts)
        await world.call(node_contract.STATUS, report, token=gpu_node.token)


async def test_the_smallest_nodes_are_allocated_first_and_equals_by_name(world: World) -> None:
    await sized_fleet(world)
    await world.node("aa")
    made = (await world.call(capacity.ALLOCATION_CREATE, {"count": 6})).items
    assert [allocation.node_name for allocation in made] == ["aa", "b", "c", "d", "a", "e"]


async def test_a_node_that_is_asked_for_by_name_is_allocated(world: World) -> None:
    await sized_fleet(world)
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {"node_name": "e"})).items
    assert made.node_name == "e"


@pytest.mark.parametrize("count", [10, 300])
async def test_what_an_allocation_reads_does_not_grow_with_the_fleet(
    world: World, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of all nodes, only those that are allocated are decoded."""
    await world.node("n0")
    await copy_node(world, "n0", count)
    decoded: list[int] = []
    find = store.NODES.find

    async def counting(reader: db.Reader, where: str, *values: Any) -> list[capacity.Node]:
        rows = await find(reader, where, *values)
        decoded.append(len(rows))
        return rows

    monkeypatch.setattr(store.NODES, "find", counting)
    await world.call(capacity.ALLOCATION_CREATE, {"count": 2})
    assert sum(decoded) == 2
