"""Nodes between projects: a node whose allocation was released, a project of another tenant, and what they get."""

from typing import Any

from gpuaas_contract import capacity, identity
from platform_world import Node, World

REASON = {"reason": "before the next tenant"}


async def released(world: World, name: str = "n1") -> Node:
    """A node whose allocation was released, with the agent's word that nothing is left."""
    allocation = await world.allocation(name)
    world.clock.forward(1)
    await world.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
    await world.finish_task(world.nodes[name])
    world.clock.forward(1)
    return world.nodes[name]


async def shown(world: World, name: str = "n1") -> capacity.Node:
    return await world.call(capacity.NODE_GET, node_id=name)


async def other_project(world: World, org: str = "") -> str:
    """A second project; of another organisation, unless the id of one is given."""
    org_id = org or (await world.call(identity.ORG_CREATE, {"name": "rival"})).org_id
    made = await world.call(identity.PROJECT_CREATE, identity.CreateProject(name="secret"), org_id=org_id)
    return made.project_id


async def allocate(world: World, project_id: str, **wanted: Any) -> capacity.Allocation:
    body = capacity.CreateAllocation(**wanted)
    return (await world.call(capacity.ALLOCATION_CREATE, body, project_id=project_id)).items[0]
