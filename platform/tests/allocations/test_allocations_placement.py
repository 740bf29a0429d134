"""Which nodes a request gets, decided from facts alone; and what is said, and to whom, when there are too few."""

from typing import Any

import msgspec
import pytest
from gpuaas_contract import errors
from gpuaas_contract.capacity import CreateAllocation, Facts, Gpu, Node
from gpuaas_contract.policy import Choice, Overlay
from gpuaas_platform.allocations import selection as allocation_placement
from gpuaas_platform.kit import clock


def node(name: str, *, gpus: int = 0, cpus: int = 4, memory_mb: int = 1000, **fields: Any) -> Node:
    devices = [Gpu(index=index, type="big", device=f"/dev/nvidia{index}") for index in range(gpus)]
    made = Node(
        node_id=f"node_{name}",
        name=name,
        region="eu",
        sku="standard",
        status="ready",
        address="10.0.0.1",
        ssh_host_public_key="",
        facts=Facts(hostname=name, cpus=cpus, memory_mb=memory_mb, gpus=devices),
        agent_version="1",
        boot_id="1",
        enrolled_at=clock.EPOCH,
        last_seen_at=clock.EPOCH,
        allocation_id=None,
    )
    return msgspec.structs.replace(made, **fields)


def chosen(nodes: list[Node], **wanted: Any) -> list[str]:
    return [found.name for found in allocation_placement.choose(nodes, CreateAllocation(**wanted))]


def refusal(nodes: list[Node], *, names_nodes: bool = False, **wanted: Any) -> errors.NoCapacity:
    with pytest.raises(errors.NoCapacity) as refused:
        allocation_placement.choose(nodes, CreateAllocation(**wanted), names_nodes=names_nodes)
    return refused.value


def test_the_smallest_nodes_go_first_and_equals_by_name() -> None:
    nodes = [node("e", gpus=8), node("d", cpus=8), node("c", memory_mb=2000), node("b"), node("a", gpus=1)]
    assert chosen(nodes, count=5) == ["b", "c", "d", "a", "e"]
    assert chosen([node("z"), node("y"), node("x")], count=2) == ["x", "y"]


def test_the_same_facts_give_the_same_answer_in_whatever_order_they_come() -> None:
    nodes = [node("a", gpus=2), node("b", region="us"), node("c", gpus=1), node("d", region="us")]
    answers = {tuple(chosen([*nodes[shift:], *nodes[:shift]], count=2)) for shift in range(len(nodes))}
    assert answers == {("c", "a")}


def test_all_nodes_of_a_request_stand_in_one_region_the_tightest_that_can_carry_it() -> None:
    nodes = [
        *(node(f"eu-{number}") for number in range(3)),
        *(node(f"us-{number}", region="us") for number in range(2)),
    ]
    assert chosen(nodes) == ["us-0"]
    assert chosen(nodes, count=2) == ["us-0", "us-1"]
    assert chosen(nodes, count=3) == ["eu-0", "eu-1", "eu-2"]
    refused = refusal(nodes, count=4)
    assert refused.details == {"asked": 4, "fitting": {"eu": 3, "us": 2}, "reasons": {}}
    assert "3 in eu, 2 in us" in refused.message


def test_the_refusal_counts_the_first_thing_that_speaks_against_each_node() -> None:
    nodes = [
        node("a", sku="old"),
        node("b", region="us"),
        node("c", admin_state="cordoned", status="lost"),
        node("d", status="lost", allocation_id="alloc_1"),
        node("e", allocation_id="alloc_2"),
        node("f", allocation_id="alloc_3"),
    ]
    refused = refusal(nodes, sku="standard", region="eu")
    assert refused.details["reasons"] == {"allocated": 2, "cordoned": 1, "lost": 1, "region": 1, "sku": 1}
    assert "2 allocated" in refused.message


def test_nodes_are_named_to_those_who_may_see_them_only() -> None:
    nodes = [node("secret-1", allocation_id="alloc_1"), node("secret-2", admin_state="draining")]
    hidden = refusal(nodes)
    assert "secret" not in hidden.message + str(hidden.details)
    shown = refusal(nodes, names_nodes=True)
    assert shown.details["why_not"] == {"secret-1": "it is allocated", "secret-2": "it is draining"}


def test_a_node_asked_for_by_name_is_the_only_one_that_fits() -> None:
    nodes = [node("a"), node("b")]
    assert chosen(nodes, node_name="b") == ["b"]
    assert refusal(nodes, node_name="c").details["reasons"] == {"name": 2}


def test_what_policy_refuses_is_left_out() -> None:
    layers = [("org", Overlay(regions=Choice(deny=["us"])))]
    nodes = [node("a", region="us"), node("b")]
    found = allocation_placement.choose(nodes, CreateAllocation(), layers)  # type: ignore[arg-type]
    assert [one.name for one in found] == ["b"]


def test_without_any_node_the_refusal_says_so() -> None:
    assert refusal([]).message == "No node fits. No other node is enrolled."
