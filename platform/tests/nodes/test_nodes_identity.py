"""A node's identity touches that node only: every route a node can call, tried on what belongs to another."""

from typing import Any

import msgspec
import pytest
from gpuaas_contract import agents, capacity, errors, node, placements, registry
from gpuaas_contract.endpoint import Endpoint
from platform_world import Node, World

NODE_ROUTES: tuple[Endpoint[Any, Any], ...] = (
    node.STATUS,
    node.TASK_NEXT,
    node.TASK_RESULT,
    node.AGENT_FILE,
    placements.PLACED_CONTENT_GET,
)
"""A new route for nodes is listed here and tried below. Bytes placed for another: `test_artifact_placements`."""


async def snapshot(world: World, gpu_node: Node) -> tuple[capacity.Node, list[agents.NodeTask], list[str]]:
    """Return everything the platform stores about a node."""
    shown = await world.call(capacity.NODE_GET, node_id=gpu_node.node_id)
    tasks = (await world.call(agents.NODE_TASK_LIST, node_id=gpu_node.node_id)).items
    allocations = (await world.call(capacity.NODE_ALLOCATIONS, node_id=gpu_node.node_id)).items
    return shown, tasks, [f"{held.allocation_id} {held.status}" for held in allocations]


def test_the_routes_of_nodes_are_those_tried_here() -> None:
    assert {endpoint.name for endpoint in registry.ENDPOINTS if endpoint.audience == "node"} == {
        endpoint.name for endpoint in NODE_ROUTES
    }
    assert not [endpoint.name for endpoint in NODE_ROUTES if "node_id" in endpoint.path]


async def test_with_one_nodes_identity_nothing_of_another_is_read_or_written(world: World) -> None:
    mine, other = await world.node("mine"), await world.node("other")
    await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name="other"))
    await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=other.node_id)
    before = await snapshot(world, other)
    shown: list[str] = []
    for task in before[1]:
        for status in ("succeeded", "failed", "refused"):
            error = None if status == "succeeded" else {"code": "x", "message": "x"}
            body: dict[str, Any] = {
                "status": status,
                "result": {"ssh_host_public_key": "ssh-ed25519 EVIL"},
                "error": error,
            }
            answer = await world.send(node.TASK_RESULT, body, token=mine.token, task_id=task.task_id)
            absent = await world.send(node.TASK_RESULT, body, token=mine.token, task_id="task_" + "0" * 26)
            assert (answer.status_code, answer.json()["message"]) == (404, absent.json()["message"])
            shown.append(answer.text)
    polled = await world.send(node.TASK_NEXT, token=mine.token)
    assert polled.json() == {"task": None, "is_urgent": False}
    facts = {"hostname": "other", "cpus": 1, "memory_mb": 1, "addresses": ["10.6.6.6"]}
    beat = {"agent_version": "evil", "boot_id": "evil", "facts": facts}
    shown += [polled.text, (await world.send(node.STATUS, beat, token=mine.token)).text]
    assert await snapshot(world, other) == before
    secrets = [other.node_id, *(task.task_id for task in before[1])]
    assert not [secret for secret in secrets if any(secret in text for text in shown)]


async def test_a_node_reaches_no_route_of_people_and_they_reach_none_of_its_own(world: World) -> None:
    n1 = await world.node("n1")
    person, account = world.token, await world.service_account()
    params = {"org_id": "org_0", "user_id": "user_0", "instance_id": "inst_0", "operation_id": "op_0"}
    for endpoint in registry.ENDPOINTS:
        path_words = {part[1:-1] for part in endpoint.path.split("/") if part.startswith("{")}
        filled: dict[str, Any] = {**dict.fromkeys(path_words, "absent_0"), **params, "project_id": world.project_id}
        tokens = {"caller": [n1.token], "node": [person, account], "public": []}[endpoint.audience]
        for token in tokens:
            answer = await world.send(endpoint, {}, token=token, **filled)
            assert (endpoint.name, answer.status_code) == (endpoint.name, 401)


async def test_another_nodes_key_or_id_makes_no_token(world: World) -> None:
    mine, other = await world.node("mine"), await world.node("other")
    forged = Node(other.node_id, other.name, mine.key, "")
    with pytest.raises(errors.CredentialsInvalid):
        await world.node_login(forged)
    token = await world.node_login(mine)
    seen = await world.call(capacity.NODE_GET, node_id=other.node_id)
    facts = capacity.Facts(hostname="mine", cpus=9, memory_mb=9)
    await world.call(node.STATUS, {"agent_version": "2", "boot_id": "2", "facts": facts}, token=token)
    assert await world.call(capacity.NODE_GET, node_id=other.node_id) == seen
    assert (await world.call(capacity.NODE_GET, node_id=mine.node_id)).facts == facts


async def test_a_signed_task_names_its_node_so_that_no_other_runs_it(world: World) -> None:
    n1 = await world.node("n1")
    await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=n1.node_id)
    answer = await world.call(node.TASK_NEXT, token=n1.token)
    assert answer.task is not None
    assert msgspec.json.decode(answer.task.payload)["node_id"] == n1.node_id
