"""No node is marked as lost because the platform could not receive: its store or its processes were down."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import postgres_server
import pytest
from gpuaas_contract import capacity, events, node
from gpuaas_platform import server
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.call import Site
from gpuaas_platform.kit import ids
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import reconcile
from platform_world import FakeClock, Node, World

AWAY_S = 300


async def beat(world: World, gpu_node: Node) -> None:
    facts = capacity.Facts(hostname=gpu_node.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    report = node.NodeStatusReport(agent_version="1", boot_id="b", facts=facts)
    await world.call(node.STATUS, report, token=gpu_node.token)


async def pass_time(world: World, seconds: float, sites: Sequence[Site], *, speaking: Sequence[Node] = ()) -> None:
    """Let time pass. All processes sweep at once, every second."""
    for _ in range(int(seconds)):
        world.clock.forward(1)
        for gpu_node in speaking:
            await beat(world, gpu_node)
        await asyncio.gather(*(reconcile.sweep(site) for site in sites))


async def reported_states(world: World) -> list[tuple[str, str]]:
    """Return the names and states of the nodes that changed, oldest first."""
    rows = await world.site.database.reader.all("SELECT document FROM events ORDER BY cursor")
    recorded = [msgspec.json.decode(row[0], type=events.Event) for row in rows]
    changes = [event.payload for event in recorded if event.type == "capacity.node.changed"]
    return [(payload["name"], payload["status"]) for payload in changes]


async def lost(world: World) -> list[str]:
    return [gpu_node.name for gpu_node in (await world.call(capacity.NODE_LIST, query={"status": "lost"})).items]


async def test_a_store_that_was_down_for_a_while_marks_no_node_as_lost(world: World) -> None:
    """Heartbeats could not be recorded; loops that only read continued."""
    n1 = await world.node("n1")
    await pass_time(world, 30, [world.site], speaking=[n1])
    for _ in range(AWAY_S):
        world.clock.forward(1)
        await grants_reconcile.sweep(world.site)
    await pass_time(world, world.site.settings.node_lost_after_s, [world.site])
    assert await lost(world) == []
    await pass_time(world, 1, [world.site])
    assert await lost(world) == ["n1"]


class TestTwoProcesses:
    """On one PostgreSQL: SQLite is for one process."""

    @pytest.fixture
    def database_url(self, postgres_folder: Path) -> str:
        name = ids.new("db")
        postgres_server.create_database(postgres_folder, name)
        return f"postgresql://postgres@/{name}?host={postgres_folder}"

    async def test_a_new_process_does_not_mark_nodes_as_lost_that_the_other_receives(
        self, world: World, settings: Settings, clock: FakeClock
    ) -> None:
        speaking, silent = await world.node("n1"), await world.node("n2")
        await pass_time(world, 15, [world.site], speaking=[speaking])
        async with server.open_site(settings, clock) as second:
            await pass_time(world, 5, [second, world.site], speaking=[speaking])
            assert await lost(world) == []
            await pass_time(world, 2, [second, world.site], speaking=[speaking])
            assert await lost(world) == [silent.name]

    async def test_after_both_were_down_every_node_has_time_to_send_a_heartbeat_to_either(
        self, world: World, settings: Settings, clock: FakeClock
    ) -> None:
        n1 = await world.node("n1")
        await pass_time(world, 30, [world.site], speaking=[n1])
        clock.forward(AWAY_S)
        async with server.open_site(settings, clock) as second:
            await pass_time(world, settings.node_lost_after_s, [second, world.site])
            assert await lost(world) == []

    async def test_a_change_that_both_see_at_once_is_reported_once(
        self, world: World, settings: Settings, clock: FakeClock
    ) -> None:
        nodes = [await world.node(f"n{number}") for number in range(5)]
        async with server.open_site(settings, clock) as second:
            await pass_time(world, settings.node_lost_after_s + 3, [second, world.site])
        assert (await reported_states(world))[len(nodes) :] == [(gpu_node.name, "lost") for gpu_node in nodes]
