"""A controller that holds a deploy on two machines and an artifact it may put there: what tests of placements share."""

from dataclasses import dataclass
from typing import Any

import httpx
from artifact_world import CONTENT, promoted, trusted
from gpuaas_contract import capacity, events, instances, placements
from gpuaas_contract.artifacts import Artifact
from gpuaas_contract.placements import ArtifactPlacement
from platform_world import Node, World
from scripted_controller import CLUSTERED, Held


@dataclass
class Placing:
    world: World
    held: Held
    node: Node
    """The head's machine."""
    allocation_id: str
    other: Node
    artifact: Artifact

    def body(self, **changes: Any) -> dict[str, Any]:
        held = self.held
        request = {"allocation_id": self.allocation_id, "operation_id": held.operation_id, "epoch": held.claim.epoch}
        return {**request, **changes}

    async def place(self, artifact: Artifact | None = None, *, token: str = "", **changes: Any) -> ArtifactPlacement:
        where = {"artifact_id": (artifact or self.artifact).artifact_id}
        request = self.body(**changes)
        return await self.world.call(placements.PLACEMENT_CREATE, request, token=token or self.held.token, **where)

    async def unplace(self, artifact: Artifact | None = None, *, token: str = "", **changes: Any) -> ArtifactPlacement:
        where = {"artifact_id": (artifact or self.artifact).artifact_id}
        request = self.body(**changes)
        return await self.world.call(placements.PLACEMENT_REMOVE, request, token=token or self.held.token, **where)

    async def now(self, placement: ArtifactPlacement, wait_s: float = 0) -> ArtifactPlacement:
        where = {"artifact_id": placement.artifact_id, "placement_id": placement.placement_id}
        query = {"wait_s": wait_s}
        return await self.world.call(placements.PLACEMENT_GET, token=self.held.token, query=query, **where)

    async def ended(self, placement: ArtifactPlacement) -> ArtifactPlacement:
        while placement.state in ("queued", "removing"):
            placement = await self.now(placement, wait_s=30)
        return placement

    async def content(self, placement: ArtifactPlacement, token: str = "") -> httpx.Response:
        token = token or self.node.token
        return await self.world.send(placements.PLACED_CONTENT_GET, token=token, placement_id=placement.placement_id)

    async def event_states(self) -> list[tuple[str, str]]:
        """State and code of each event about the placement."""
        recorded = (await self.world.call(events.EVENT_LIST)).items
        about = [event.payload for event in recorded if event.type == "artifacts.placement.changed"]
        return [(payload["state"], payload["code"]) for payload in about]


async def allocated(world: World, name: str) -> tuple[Node, str]:
    """A node that carries an active allocation."""
    node = await world.node(name)
    (made,) = (await world.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))).items
    await world.finish_task(node)
    return node, made.allocation_id


async def placing(world: World, content: bytes = CONTENT) -> Placing:
    artifact = await promoted(world, await trusted(world), content)
    node, head = await allocated(world, "n1")
    other, hand = await allocated(world, "n2")
    return await on_machines(world, artifact, (node, head), (other, hand))


async def on_machines(world: World, artifact: Artifact, head: tuple[Node, str], hand: tuple[Node, str]) -> Placing:
    """The deploy is asked for and taken up."""
    await world.entitled_app(**CLUSTERED)
    token = await world.service_account()
    inputs = {"head_allocation": head[1], "hand_allocations": [hand[1]]}
    body = instances.DeployInstance(name="one", app_slug="toy", topology="pair", inputs=inputs)
    await world.call(instances.INSTANCE_CREATE, body)
    held = Held(world, token, await world.claim(token, lease_s=60))
    return Placing(world, held, head[0], head[1], hand[0], artifact)
