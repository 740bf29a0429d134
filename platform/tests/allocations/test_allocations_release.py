"""A node is free again only with evidence: a failed release is tried again, forced, or finished later."""

from typing import Any

import pytest
from gpuaas_contract import audit, capacity, errors, node
from gpuaas_contract.endpoint import Endpoint
from platform_world import Node, World

REASON = {"reason": "the rack burnt down"}
CLEAN: dict[str, Any] = {
    "user": "gpu-1",
    "home": "/home/gpu-1",
    "processes_ended": 2,
    "keys": ["/etc/gpuaas/ssh/user_ca.pub"],
    "principals": ["/etc/gpuaas/ssh/principals/gpu-1"],
    "files": ["/tmp/x"],
}


async def allocated(world: World, name: str = "n1") -> tuple[Node, str]:
    gpu_node = await world.node(name)
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {"node_name": name})).items
    await world.finish_task(gpu_node)
    return gpu_node, made.allocation_id


async def answer(world: World, gpu_node: Node, **outcome: Any) -> None:
    task = await world.next_task(gpu_node)
    assert task is not None
    assert task["type"] == "allocation.release"
    await world.call(
        node.TASK_RESULT, {"status": "succeeded", **outcome}, token=gpu_node.token, task_id=task["task_id"]
    )


async def fail(world: World, gpu_node: Node) -> None:
    await answer(world, gpu_node, status="failed", error={"code": "processes_remain", "message": "1 does not end"})


async def get(world: World, allocation_id: str) -> capacity.Allocation:
    return await world.call(capacity.ALLOCATION_GET, allocation_id=allocation_id)


async def node_of(world: World, gpu_node: Node) -> capacity.Node:
    return await world.call(capacity.NODE_GET, node_id=gpu_node.node_id)


async def release(world: World, allocation_id: str) -> capacity.Allocation:
    return await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation_id)


async def force(world: World, allocation_id: str, token: str | None = None) -> capacity.Allocation:
    return await world.call(capacity.ALLOCATION_FORCE_RELEASE, REASON, allocation_id=allocation_id, token=token)


async def beat(world: World, gpu_node: Node) -> None:
    facts = capacity.Facts(hostname=gpu_node.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    await world.call(node.STATUS, {"agent_version": "1", "boot_id": "1", "facts": facts}, token=gpu_node.token)


async def silence(world: World, gpu_node: Node) -> None:
    """Let time pass without a heartbeat until the node is lost and its task has expired."""
    for _ in range(world.site.settings.task_ttl_s + 1):
        world.clock.forward(1)
        await world.sweep()
    assert (await node_of(world, gpu_node)).status == "lost"


async def come_back(world: World, gpu_node: Node) -> None:
    gpu_node.token = await world.node_login(gpu_node)
    await beat(world, gpu_node)
    await world.sweep()


async def test_a_release_ends_with_the_evidence_of_the_nodes_agent(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await answer(world, n1, result={"evidence": CLEAN})
    released = await get(world, allocation_id)
    assert released.status == "released"
    assert released.release_evidence == capacity.ReleaseEvidence(**CLEAN, reported_at=world.clock())
    assert (await node_of(world, n1)).allocation_id is None


async def test_a_node_with_something_left_behind_is_not_released(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    left = [f"/opt/{number}" for number in range(7)]
    await answer(world, n1, result={"evidence": {**CLEAN, "left_behind": left}})
    stuck = await get(world, allocation_id)
    assert (stuck.status, stuck.status_reason) == (
        "release_failed",
        "left_behind: /opt/0, /opt/1, /opt/2, /opt/3, /opt/4 and 2 more",
    )
    assert stuck.release_evidence is not None
    assert stuck.release_evidence.left_behind == left
    with pytest.raises(errors.NoCapacity):
        await world.call(capacity.ALLOCATION_CREATE, {})


@pytest.mark.parametrize("result", [{}, {"evidence": "none"}, {"evidence": {"left_behind": 7}}])
async def test_evidence_that_cannot_be_read_is_none(world: World, result: dict[str, Any]) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await answer(world, n1, result=result)
    assert (await get(world, allocation_id)).release_evidence is None


async def test_a_failed_release_is_tried_again_with_longer_and_longer_pauses(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    for attempt, pause_s in enumerate((30, 60, 120), 1):
        await fail(world, n1)
        stuck = await get(world, allocation_id)
        assert (stuck.status, stuck.release_attempts) == ("release_failed", attempt)
        assert stuck.status_reason == "processes_remain: 1 does not end"
        world.clock.forward(pause_s - 1)
        await beat(world, n1)
        await world.sweep()
        assert await world.next_task(n1) is None
        world.clock.forward(1)
        await world.sweep()
        assert (await get(world, allocation_id)).status == "releasing"
    await answer(world, n1, result={"evidence": CLEAN})
    healed = await get(world, allocation_id)
    assert (healed.status, healed.status_reason, healed.release_retry_at) == ("released", "", None)


async def test_a_repeated_request_does_not_wait_for_the_pause(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await fail(world, n1)
    assert (await release(world, allocation_id)).status == "releasing"
    assert (await release(world, allocation_id)).release_attempts == 2
    await answer(world, n1)
    assert await world.next_task(n1) is None


async def test_a_release_with_the_node_cut_off_fails_and_heals_when_the_node_comes_back(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await silence(world, n1)
    stuck = await get(world, allocation_id)
    assert (stuck.status, "did not answer" in stuck.status_reason) == ("release_failed", True)
    world.clock.forward(600)
    await world.sweep()
    assert (await get(world, allocation_id)).release_attempts == 1, "a lost node gets no new task"
    await come_back(world, n1)
    await answer(world, n1, result={"evidence": CLEAN})
    assert (await get(world, allocation_id)).status == "released"
    assert (await node_of(world, n1)).admin_state == "active"


async def test_an_allocation_that_is_given_up_leaves_its_node_cordoned(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await fail(world, n1)
    given_up = await force(world, allocation_id)
    assert (given_up.status, given_up.status_reason) == ("released", f"given up: {REASON['reason']}")
    shown = await node_of(world, n1)
    assert (shown.allocation_id, shown.admin_state) == (None, "cordoned")
    assert allocation_id in shown.admin_reason
    with pytest.raises(errors.NoCapacity, match="1 cordoned"):
        await world.call(capacity.ALLOCATION_CREATE, {})
    trail = await world.call(audit.AUDIT_LIST, query={"action": "capacity.allocation.force_release"})
    assert trail.items[-1].details["reason"] == REASON["reason"]


async def test_a_node_that_was_given_up_is_cleaned_when_it_comes_back(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await release(world, allocation_id)
    await silence(world, n1)
    await force(world, allocation_id)
    await silence(world, n1)
    world.clock.forward(60)
    await come_back(world, n1)
    await answer(world, n1, result={"evidence": CLEAN})
    cleaned = await get(world, allocation_id)
    assert (cleaned.status, cleaned.release_retry_at) == ("released", None)
    assert cleaned.release_evidence is not None
    assert cleaned.status_reason.startswith("given up")
    assert (await node_of(world, n1)).admin_state == "cordoned", "an operator has the last look"


async def test_only_what_could_not_be_released_can_be_given_up(world: World) -> None:
    _, allocation_id = await allocated(world)
    with pytest.raises(errors.Conflict, match="only one whose release failed"):
        await force(world, allocation_id)


async def test_a_node_that_operators_drain_stays_draining_when_its_allocation_is_given_up(world: World) -> None:
    n1, allocation_id = await allocated(world)
    await world.call(capacity.NODE_DRAIN, REASON, node_id=n1.node_id)
    await release(world, allocation_id)
    await fail(world, n1)
    await force(world, allocation_id)
    assert (await node_of(world, n1)).admin_state == "draining"
    await world.call(capacity.NODE_RETIRE, REASON, node_id=n1.node_id)


async def test_an_allocation_in_use_is_released_by_override_only(world: World) -> None:
    await world.entitled_app()
    deployed = await world.deploy()
    allocation_id = next(member.allocation_id for member in deployed.members if member.allocation_id)
    with pytest.raises(errors.Conflict, match=deployed.instance.instance_id):
        await release(world, allocation_id)
    released = await world.call(capacity.ALLOCATION_RELEASE_USED, REASON, allocation_id=allocation_id)
    assert (released.status, released.status_reason) == ("releasing", REASON["reason"])
    trail = await world.call(audit.AUDIT_LIST, query={"action": "capacity.allocation.release_used"})
    assert trail.items[-1].details == {**REASON, "instance_ids": [deployed.instance.instance_id]}
    world.clock.forward(world.site.settings.task_ttl_s + 1)
    await world.sweep()
    assert (await get(world, allocation_id)).status == "release_failed"
    assert (await release(world, allocation_id)).status == "releasing", "it was overridden once"


async def test_members_can_release_and_only_admins_can_override(world: World) -> None:
    member = await world.person("mia", "project_member", world.project_id)
    _, allocation_id = await allocated(world)
    overrides: tuple[Endpoint[Any, Any], ...] = (capacity.ALLOCATION_RELEASE_USED, capacity.ALLOCATION_FORCE_RELEASE)
    for endpoint in overrides:
        denied = await world.send(endpoint, REASON, token=member.token, allocation_id=allocation_id)
        assert (denied.status_code, denied.json()["details"]["permission"]) == (403, endpoint.permission)
        unexplained = await world.send(endpoint, {"reason": " "}, allocation_id=allocation_id)
        assert (unexplained.status_code, unexplained.json()["details"]["field"]) == (400, "reason")
    await world.call(capacity.ALLOCATION_RELEASE, token=member.token, allocation_id=allocation_id)


async def test_a_node_that_could_not_prepare_an_allocation_is_cleaned_before_it_is_free(world: World) -> None:
    n1 = await world.node("n1")
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, {})).items
    await world.finish_task(n1, "failed")
    failed = await get(world, made.allocation_id)
    assert (failed.status, failed.status_reason) == ("failed", "boom: it broke")
    with pytest.raises(errors.NoCapacity):
        await world.call(capacity.ALLOCATION_CREATE, {})
    await release(world, made.allocation_id)
    await answer(world, n1, result={"evidence": CLEAN})
    await world.call(capacity.ALLOCATION_CREATE, {})
