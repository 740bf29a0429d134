"""Many nodes at once: a node that sends heartbeats is never marked as lost, a silent one always is.

`bench/fleet.py` measures the same.
"""

import asyncio
from collections.abc import Sequence

from gpuaas_contract import capacity, node
from gpuaas_platform.nodes import reconcile
from platform_world import Node, World

NODES = 60
INTERVAL_S = 10.0
ROUNDS = 6


async def test_exactly_the_silent_nodes_of_a_fleet_are_lost(world: World) -> None:
    fleet = [await world.node(f"node-{number}") for number in range(NODES)]
    speaking, silent = fleet[::2], fleet[1::2]
    for _ in range(ROUNDS):
        await pass_time(world, fleet)
        assert await lost(world) == set()
    for _ in range(ROUNDS):
        await pass_time(world, speaking)
    assert await lost(world) == {gpu_node.name for gpu_node in silent}
    await pass_time(world, fleet)
    assert await lost(world) == set()


async def pass_time(world: World, speaking: Sequence[Node]) -> None:
    """Let one interval pass. The sweep runs during it; the heartbeats of the fleet arrive together."""
    sweep_s = world.site.settings.sweep_interval_s
    await asyncio.gather(*(beat(world, gpu_node) for gpu_node in speaking))
    for _ in range(int(INTERVAL_S / sweep_s)):
        world.clock.forward(sweep_s)
        await reconcile.sweep(world.site)


async def beat(world: World, gpu_node: Node) -> None:
    facts = capacity.Facts(hostname=gpu_node.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    report = node.NodeStatusReport(agent_version="1", boot_id="b", facts=facts)
    await world.call(node.STATUS, report, token=gpu_node.token)


async def lost(world: World) -> set[str]:
    page = await world.call(capacity.NODE_LIST, query={"status": "lost", "page_size": 100})
    return {gpu_node.name for gpu_node in page.items}
