"""Agents and platform are killed with -9 again and again while tasks flow: every task counts once, none is lost."""

import asyncio
import collections
import random
import uuid
from pathlib import Path
from typing import Any, TypeVar

import campaigns
import httpx
import msgspec
from agent_process_on_folder import AgentProcess
from gpuaas_contract import capacity, events
from gpuaas_contract.endpoint import Endpoint
from server_process import Cloud, ServerProcess, until

Answer = TypeVar("Answer")
Moves = collections.Counter[str]
"""How often each node was taken or given back."""
Users = list[asyncio.Task[list[str]]]

KILLS = campaigns.size(short={"sqlite": 24, "postgres": 20}, whole={"sqlite": 100, "postgres": 40})
"""By store: the tasks and the agents are the same on both, and only the SQL differs."""
KILLS_IN_A_ROW = 10
"""Then every node gets something done: where an agent starts more slowly than it is killed, its tasks would expire."""
PLATFORM_SHARE = 0.2
PAUSE_S_MAX = 0.6
NODES = ("gpu-1", "gpu-2")


async def call_until_answered(cloud: Cloud, endpoint: Endpoint[Any, Answer], body: Any = None, **params: Any) -> Answer:
    """Repeat the request with the same idempotency key until the platform answers, however often it is killed."""
    key = uuid.uuid4().hex
    while True:
        try:
            answer = await cloud.send(endpoint, body, key=key, **params)
        except httpx.TransportError:
            await asyncio.sleep(0.05)
            continue
        if answer.status_code < 500:
            assert answer.status_code == endpoint.status, answer.text
            return msgspec.json.decode(answer.content, type=endpoint.response)
        await asyncio.sleep(0.05)


async def reach(cloud: Cloud, allocation_id: str, status: str) -> None:
    while True:
        allocation = await call_until_answered(cloud, capacity.ALLOCATION_GET, allocation_id=allocation_id)
        if allocation.status == status:
            return
        assert allocation.status in ("provisioning", "active", "releasing"), allocation.status_reason
        await asyncio.sleep(0.05)


async def use_node(cloud: Cloud, name: str, over: asyncio.Event, moves: Moves) -> list[str]:
    """Take the node and give it back until `over` is set. Return the allocations that were made."""
    made = []
    while not over.is_set():
        (created,) = (await call_until_answered(cloud, capacity.ALLOCATION_CREATE, {"node_name": name})).items
        made.append(created.allocation_id)
        await reach(cloud, created.allocation_id, "active")
        moves[name] += 1
        await call_until_answered(cloud, capacity.ALLOCATION_RELEASE, allocation_id=created.allocation_id)
        await reach(cloud, created.allocation_id, "released")
        moves[name] += 1
    return made


async def wait_for_moves(users: Users, moves: Moves) -> None:
    """Wait until every node was taken or given back, or until a user failed: the test reports that at its end."""
    before = moves.copy()
    await until(lambda: all(moves[name] > before[name] for name in NODES) or any(user.done() for user in users))


async def kill_at_random(
    server: ServerProcess, agents: list[AgentProcess], dice: random.Random, users: Users, moves: Moves, kills: int
) -> int:
    """Kill and restart processes. Return how many of the kills hit an agent."""
    agent_kills = 0
    for number in range(kills):
        if number % KILLS_IN_A_ROW == 0:
            await wait_for_moves(users, moves)
        await asyncio.sleep(dice.uniform(0, PAUSE_S_MAX))
        victim = server if dice.random() < PLATFORM_SHARE else dice.choice(agents)
        agent_kills += victim is not server
        victim.kill()
        await asyncio.to_thread(victim.start)
    return agent_kills


async def enrolled(cloud: Cloud, server: ServerProcess, folder: Path, name: str) -> AgentProcess:
    token = await call_until_answered(cloud, capacity.ENROLMENT_CREATE, {"name": name})
    agent = AgentProcess(folder / name, server.url, name, token.token)
    agent.start()
    while True:
        if (await call_until_answered(cloud, capacity.NODE_LIST, query={"name": name})).items:
            return agent
        await asyncio.sleep(0.05)


async def test_kills_of_agents_and_platform_lose_no_task_and_repeat_no_effect(
    tmp_path: Path, database_url: str
) -> None:
    dice = random.Random(5)
    with ServerProcess(tmp_path / "data", database_url) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(server.admin_password())
            await cloud.make_project()
            agents = [await enrolled(cloud, server, tmp_path, name) for name in NODES]
            try:
                over, moves = asyncio.Event(), Moves()
                users = [asyncio.create_task(use_node(cloud, name, over, moves)) for name in NODES]
                kills = KILLS["postgres" if database_url else "sqlite"]
                agent_kills = await kill_at_random(server, agents, dice, users, moves, kills)
                over.set()
                made = await asyncio.gather(*users)
                recorded = await cloud.recorded()
            finally:
                for agent in agents:
                    agent.kill()
    check_once(made, agents, agent_kills, recorded)


def check_once(
    made: list[list[str]], agents: list[AgentProcess], agent_kills: int, recorded: list[events.Event]
) -> None:
    """One effect and one transition for each task. A handler ran again only where its process died in the middle."""
    moves = collections.Counter(
        (event.payload["allocation_id"], event.payload["status"])
        for event in recorded
        if event.type == "capacity.allocation.changed"
    )
    allocations = [allocation_id for of_node in made for allocation_id in of_node]
    assert len(allocations) > len(NODES), "tasks flowed"
    assert {moves[allocation_id, status] for allocation_id in allocations for status in ("active", "released")} == {1}
    again = 0
    for of_node, agent in zip(made, agents, strict=True):
        runs = agent.runs()
        tasks = {task for task, _ in runs}
        wanted = {
            f"{kind} {allocation_id}"
            for allocation_id in of_node
            for kind in ("allocation.provision", "allocation.release")
        }
        assert wanted <= tasks, "none is lost"
        assert {task.split()[1] for task in tasks} == set(of_node), "no node ran another's task"
        assert set(runs.values()) == {1}, "no process ran a task twice"
        assert list((agent.folder / "users").iterdir()) == [], "no provision came back after its release"
        again += sum(runs.values()) - len(tasks)
    assert again <= agent_kills
