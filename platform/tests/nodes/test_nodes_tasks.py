"""Tasks of the node itself: inspections, upgrades of its agent, and the list of its past tasks."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
import signed_releases
from gpuaas_agent import handlers
from gpuaas_contract import agents, capacity, errors, node
from gpuaas_platform import server
from gpuaas_platform.call import system_origin
from gpuaas_platform.kit import db
from gpuaas_platform.nodes.tasks import service as tasks
from platform_world import Node, World
from server_process import until

DEADLINE_S = 20
STATUS = {"agent_version": "1", "boot_id": "b", "facts": {"hostname": "n1", "cpus": 4, "memory_mb": 1000}}
UPGRADE_REASON = "the fix for slow heartbeats"


async def report(world: World, gpu_node: Node, **outcome: Any) -> None:
    task = await world.next_task(gpu_node)
    assert task is not None
    await world.call(node.TASK_RESULT, outcome, token=gpu_node.token, task_id=task["task_id"])


async def test_an_operator_can_wait_for_the_health_report_of_a_node(world: World) -> None:
    n1 = await world.node("n1")
    queued = await world.call(agents.NODE_INSPECT, {"type": "host.health"}, node_id=n1.node_id)
    assert (queued.state, queued.type, queued.subject_id) == ("queued", "host.health", "")
    waiting = asyncio.create_task(
        world.call(agents.NODE_TASK_GET, query={"wait_s": 30}, node_id=n1.node_id, task_id=queued.task_id)
    )
    await report(world, n1, status="succeeded", result={"ok": True})
    ended = await waiting
    assert (ended.state, ended.result, ended.error) == ("succeeded", {"ok": True}, None)


async def test_a_task_without_an_answer_is_shown_as_expired(world: World) -> None:
    n1 = await world.node("n1")
    queued = await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=n1.node_id)
    world.clock.forward(world.site.settings.task_ttl_s + 1)
    await world.sweep()
    assert await world.next_task(n1) is None
    ended = await world.call(agents.NODE_TASK_GET, node_id=n1.node_id, task_id=queued.task_id)
    assert (ended.state, ended.result) == ("expired", {})


async def test_tasks_are_listed_newest_first_and_forgotten_after_their_time(world: World) -> None:
    n1, other = await world.node("n1"), await world.node("n2")
    made = [
        (await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=n1.node_id)).task_id for _ in range(3)
    ]
    first = await world.call(agents.NODE_TASK_LIST, query={"page_size": 2}, node_id=n1.node_id)
    rest = {"page_size": 2, "page_token": first.next_page_token}
    second = await world.call(agents.NODE_TASK_LIST, query=rest, node_id=n1.node_id)
    assert [task.task_id for task in (*first.items, *second.items)] == made[::-1]
    assert (await world.call(agents.NODE_TASK_LIST, node_id=other.node_id)).items == []
    with pytest.raises(errors.NotFound):
        await world.call(agents.NODE_TASK_GET, node_id=other.node_id, task_id=made[0])
    world.clock.forward(world.site.settings.task_ttl_s + 1)
    await world.sweep()
    world.clock.forward(world.site.settings.node_tasks_kept_s)
    world.token = await world.sign_in("admin")
    await server.forget_old_rows(world.site)
    assert (await world.call(agents.NODE_TASK_LIST, node_id=n1.node_id)).items == []


async def test_an_upgrade_is_a_signed_task_that_names_the_digest(world: World) -> None:
    n1, release = await world.node("n1"), await signed_releases.approved(world, signed_releases.archive())
    body = {"sha256": release.sha256, "reason": UPGRADE_REASON}
    queued = await world.call(agents.NODE_UPGRADE_AGENT, body, node_id=n1.node_id)
    task = await world.next_task(n1)
    assert task is not None
    assert (task["task_id"], task["type"]) == (queued.task_id, "agent.upgrade")
    assert task["params"] == {"sha256": release.sha256, "trial_s": world.site.settings.agent_trial_s}
    await report(world, n1, status="failed", error={"code": "agent_did_not_report", "message": "it was silent"})
    ended = await world.call(agents.NODE_TASK_GET, node_id=n1.node_id, task_id=queued.task_id)
    assert ended.error == node.TaskError(code="agent_did_not_report", message="it was silent")


async def test_an_upgrade_to_an_unregistered_release_is_refused(world: World) -> None:
    n1 = await world.node("n1")
    with pytest.raises(errors.NotFound, match="no agent release"):
        await world.call(agents.NODE_UPGRADE_AGENT, {"sha256": "0" * 64, "reason": "x"}, node_id=n1.node_id)
    assert await world.next_task(n1) is None


async def test_a_retired_node_takes_no_tasks(world: World) -> None:
    n1 = await world.node("n1")
    await world.call(capacity.NODE_RETIRE, {"reason": "sold"}, node_id=n1.node_id)
    with pytest.raises(errors.Conflict, match="retired"):
        await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=n1.node_id)


async def queued(world: World, node_id: str, kind: str, subject_id: str = "") -> str:
    async def use_case(tx: db.Tx) -> str:
        return await tasks.queue(tx, world.site, system_origin(world.clock()), node_id, kind, subject_id, {})

    return await world.site.database.write(use_case)


async def handed_out(world: World, gpu_node: Node, **query: Any) -> tuple[str, bool] | None:
    answer = await world.call(node.TASK_NEXT, token=gpu_node.token, query=query)
    return (msgspec.json.decode(answer.task.payload)["task_id"], answer.is_urgent) if answer.task else None


async def test_urgent_tasks_come_first_and_are_all_that_a_busy_node_gets(world: World) -> None:
    n1 = await world.node("n1")
    ordinary = [await queued(world, n1.node_id, "host.facts", subject) for subject in ("", "alloc_1")]
    assert await handed_out(world, n1) == (ordinary[0], False)
    assert await handed_out(world, n1, busy_with=ordinary[0]) is None
    urgent = await queued(world, n1.node_id, "ssh.trust", n1.node_id)
    assert await handed_out(world, n1, busy_with=ordinary[0]) == (urgent, True)
    assert await handed_out(world, n1) == (urgent, True)
    await world.finish_task(n1)
    assert await handed_out(world, n1) == (ordinary[0], False)


async def test_an_urgent_task_never_overtakes_one_of_the_same_allocation(world: World) -> None:
    n1 = await world.node("n1")
    provision = await queued(world, n1.node_id, "allocation.provision", "alloc_1")
    keys = await queued(world, n1.node_id, "allocation.install_authorized_keys", "alloc_1")
    assert await handed_out(world, n1, busy_with=provision) is None
    assert await handed_out(world, n1) == (provision, False)
    await world.finish_task(n1)
    assert await handed_out(world, n1) == (keys, True)


async def test_the_wait_for_a_task_is_over_when_the_task_has_ended(world: World) -> None:
    """The poll looks once at its start and then only when it is woken, so without a wake-up it would take 30 s."""
    inspected = await world.node("n1")
    task = await world.call(agents.NODE_INSPECT, {"type": "host.facts"}, node_id=inspected.node_id)
    named = {"node_id": inspected.node_id, "task_id": task.task_id}
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(world.call(agents.NODE_TASK_GET, query={"wait_s": 30}, **named))
        await until(lambda: world.site.hub.waiting == 1)
        await report(world, inspected, status="succeeded")
        assert (await waiting).state == "succeeded"


async def test_the_wait_of_a_busy_node_is_over_when_its_task_has_ended(world: World) -> None:
    """The poll looks once at its start and then only when it is woken, so without a wake-up it would take 30 s."""
    n1 = await world.node("n1")
    first, second = [await queued(world, n1.node_id, "host.facts") for _ in range(2)]
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(handed_out(world, n1, busy_with=first, wait_s=30))
        await until(lambda: world.site.hub.waiting == 1)
        await report(world, n1, status="succeeded")
        assert await waiting is None
        assert await handed_out(world, n1, busy_with=first, wait_s=30) is None
    assert await handed_out(world, n1) == (second, False)


async def test_a_heartbeat_that_waits_is_recorded_at_once_and_answered_with_the_next_task(world: World) -> None:
    n1 = await world.node("n1")
    world.clock.forward(3)
    async with asyncio.timeout(DEADLINE_S):
        waiting = asyncio.create_task(world.call(node.STATUS, STATUS, query={"wait_s": 30}, token=n1.token))
        await until(lambda: world.site.hub.waiting == 1)
        seen = await world.call(capacity.NODE_GET, node_id=n1.node_id)
        assert seen.last_seen_at == world.clock()
        task_id = await queued(world, n1.node_id, "host.facts")
        answer = await waiting
    assert answer.task is not None
    assert json.loads(answer.task.payload)["task_id"] == task_id
    assert (answer.is_urgent, answer.heartbeat_interval_s) == (False, world.site.settings.heartbeat_interval_s)


async def test_a_heartbeat_that_does_not_wait_gets_no_task(world: World) -> None:
    n1 = await world.node("n1")
    await queued(world, n1.node_id, "host.facts")
    assert (await world.call(node.STATUS, STATUS, token=n1.token)).task is None


async def test_a_heartbeat_of_a_busy_node_waits_for_urgent_tasks_only(world: World) -> None:
    n1 = await world.node("n1")
    running, _ = [await queued(world, n1.node_id, "host.facts") for _ in range(2)]
    urgent = await queued(world, n1.node_id, "ssh.trust", n1.node_id)
    query = {"wait_s": 30, "busy_with": running}
    answer = await world.call(node.STATUS, STATUS, query=query, token=n1.token)
    assert answer.task is not None
    assert (json.loads(answer.task.payload)["task_id"], answer.is_urgent) == (urgent, True)


def test_agents_have_a_handler_for_every_urgent_task() -> None:
    assert set(handlers.HANDLERS) >= node.URGENT_TASKS
