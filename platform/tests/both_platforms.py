"""A running instance on two platforms: the SDK's platform in memory, and the real one. For tests that run on both."""

from collections.abc import AsyncIterator, Awaitable
from typing import Any, Protocol

import httpx
import msgspec
import pytest
from artifact_world import CONTENT, promoted, trusted
from gpuaas_contract import (
    actions,
    artifacts,
    catalog,
    identity,
    instances,
    lifecycles,
    operations,
    placements,
)
from gpuaas_contract import node as node_contract
from gpuaas_sdk.testing import FakePlatform
from gpuaas_sdk.testing.platform import rows
from platform_world import MANIFEST, FakeClock, World
from scripted_controller import CLUSTERED, Cluster, Controller, heartbeat, take_exit

DECLARED: dict[str, Any] = {
    "permissions": {"shop.queue.flush": {"meaning": "empty the queue", "roles": ["project_member"]}},
    "actions": [
        {"name": "flush", "title": "Flush", "permission": "shop.queue.flush", "input_schema": {"type": "object"}}
    ],
    "steward": {"requests": ["repair", "replace"], "replace_input": "speed"},
}


OTHER: dict[str, Any] = {**MANIFEST, "slug": "other"}


class Side(Protocol):
    """A running instance with two hands: its controller, and the people who ask for operations."""

    controller: Controller

    async def add(self, count: int, **more: Any) -> operations.Operation: ...
    async def replace(self, member_id: str) -> operations.Operation: ...
    async def operate(self, kind: str, *member_ids: str) -> operations.Operation: ...
    async def change(self, verb: str) -> operations.Operation: ...
    async def reconfigure(self) -> operations.Operation: ...
    async def invoke(self, inputs: dict[str, Any]) -> operations.Operation: ...
    def preview_drain(self, member_id: str) -> Awaitable[operations.Preview | None]: ...
    async def leave(self, operation: operations.Operation, way: operations.ExitName) -> operations.Operation: ...
    async def hold(self, member_id: str) -> None: ...
    async def hold_work(self, member_id: str) -> None: ...
    async def shown(self) -> instances.Instance: ...
    async def instance(self) -> instances.Instance: ...
    async def member(self, member_id: str) -> instances.Member: ...
    async def artifact(self) -> artifacts.Artifact: ...
    async def arrive(self, placement: placements.ArtifactPlacement) -> None: ...
    async def foreign(self) -> operations.Operation: ...
    async def allow_replace(self) -> None: ...
    async def spare(self) -> str: ...
    async def lose(self, member_id: str) -> None: ...
    async def recover(self, node_name: str) -> None: ...
    async def breaker(self) -> instances.BreakerState: ...
    async def reset_breaker(self) -> None: ...


class Real:
    def __init__(self, cluster: Cluster) -> None:
        self.controller = cluster.controller
        self._cluster = cluster

    async def add(self, count: int, **more: Any) -> operations.Operation:
        return await self._cluster.add(*await self._cluster.machines(count), **more)

    async def replace(self, member_id: str) -> operations.Operation:
        return await self.operate("replace", member_id, allocation_ids=await self._cluster.machines(1, "new"))

    async def operate(self, kind: str, *member_ids: str, **more: Any) -> operations.Operation:
        return await self._cluster.operate(kind, *member_ids, **more)

    async def change(self, verb: str) -> operations.Operation:
        return await self._cluster.change(verb)

    async def reconfigure(self) -> operations.Operation:
        return await self._cluster.change("reconfigure", inputs={"speed": 15})

    async def invoke(self, inputs: dict[str, Any]) -> operations.Operation:
        where = {"instance_id": self._cluster.instance_id, "action": "flush"}
        return await self._cluster.world.call(actions.ACTION_INVOKE, {"inputs": inputs}, **where)

    async def preview_drain(self, member_id: str) -> operations.Preview | None:
        body = {"kind": "drain", "member_ids": [member_id]}
        planned = await self._cluster.world.call(
            instances.MEMBER_OPERATION_CREATE,
            body,
            query={"dry_run": "true"},
            instance_id=self._cluster.instance_id,
        )
        return planned.preview

    async def leave(self, operation: operations.Operation, way: operations.ExitName) -> operations.Operation:
        return await take_exit(self._cluster.world, operation, way)

    async def hold(self, member_id: str) -> None:
        await self._cluster.hold(member_id, "no_removal")

    async def hold_work(self, member_id: str) -> None:
        await self._cluster.hold(member_id, "no_work")

    async def shown(self) -> instances.Instance:
        return await self._cluster.instance()

    async def instance(self) -> instances.Instance:
        return await self._cluster.instance()

    async def member(self, member_id: str) -> instances.Member:
        return await self._cluster.member(member_id)

    async def artifact(self) -> artifacts.Artifact:
        return await promoted(self._cluster.world, await trusted(self._cluster.world))

    async def arrive(self, placement: placements.ArtifactPlacement) -> None:
        world = self._cluster.world
        node, where = (
            world.nodes[placement.node_name],
            f"{placement.allocation_id}/{placement.digest.replace(':', '/')}",
        )
        task = await world.next_task(node)
        assert task is not None
        result = {"status": "succeeded", "result": {"path": f"/var/lib/gpuaas/artifacts/{where}"}}
        await world.call(node_contract.TASK_RESULT, result, token=node.token, task_id=task["task_id"])

    async def foreign(self) -> operations.Operation:
        world, where = self._cluster.world, {"app_slug": OTHER["slug"], "version": OTHER["version"]}
        await world.call(catalog.VERSION_REGISTER, OTHER)
        await world.call(catalog.VERSION_PUBLISH, {}, **where)
        await world.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=OTHER["slug"])
        head, hand = await self._cluster.machines(2, "foreign")
        inputs = {"head_allocation": head, "hand_allocations": [hand]}
        body = {"name": "foreign", "app_slug": OTHER["slug"], "topology": "pair", "inputs": inputs}
        return (await world.call(instances.INSTANCE_CREATE, body)).operation

    async def allow_replace(self) -> None:
        await self.reconfigure()
        await self.controller.carry_out()

    async def spare(self) -> str:
        [allocation_id] = await self._cluster.machines(1, "free")
        return allocation_id

    async def lose(self, member_id: str) -> None:
        await self._cluster.lose(member_id)

    async def recover(self, node_name: str) -> None:
        await heartbeat(self._cluster.world, self._cluster.world.nodes[node_name])

    async def breaker(self) -> instances.BreakerState:
        roles = await self._cluster.world.call(instances.ROLE_LIST, instance_id=self._cluster.instance_id)
        return next(role.breaker for role in roles.items if role.component_key == "hand")

    async def reset_breaker(self) -> None:
        where = {"instance_id": self._cluster.instance_id, "component_key": "hand"}
        await self._cluster.world.call(instances.BREAKER_RESET, {"reason": "the image is repaired"}, **where)


class Fake:
    def __init__(self, platform: FakePlatform, controller: Controller) -> None:
        self.controller = controller
        self._platform = platform
        self._instance = platform.add_instance({"head": ["head"], "hand": ["hand-0", "hand-1"]}, ready=True)

    async def add(self, count: int, **more: Any) -> operations.Operation:
        new = [self._platform.records.add_member(self._instance, "hand", f"spare-{at}") for at in range(count)]
        return self._platform.request(self._instance, "add", new, component_key="hand", **more)

    async def replace(self, member_id: str) -> operations.Operation:
        member = self._platform.member(member_id)
        return self._platform.request(self._instance, "replace", [member], component_key="hand", replacements=["new-0"])

    async def operate(self, kind: Any, *member_ids: str) -> operations.Operation:
        members = [self._platform.member(member_id) for member_id in member_ids]
        return self._platform.request(self._instance, kind, members, component_key="hand")

    async def change(self, verb: Any) -> operations.Operation:
        return self._platform.request(self._instance, verb)

    async def reconfigure(self) -> operations.Operation:
        return self._platform.request(self._instance, "reconfigure")

    async def invoke(self, inputs: dict[str, Any]) -> operations.Operation:
        return self._platform.invoke(self._instance, "flush", inputs)

    async def preview_drain(self, member_id: str) -> operations.Preview | None:
        members = [self._platform.member(member_id)]
        asked = self._platform.ask_preview(self._instance, "drain", members, component_key="hand")
        return (await self._platform.ended(asked.operation_id)).preview

    async def leave(self, operation: operations.Operation, way: operations.ExitName) -> operations.Operation:
        leave = {
            "cancel": self._platform.cancel,
            "retry": self._platform.retry,
            "compensate": self._platform.compensate,
        }
        return leave[way](operation.operation_id)

    async def hold(self, member_id: str) -> None:
        self._platform.hold(self._platform.member(member_id))

    async def hold_work(self, member_id: str) -> None:
        self._platform.hold(self._platform.member(member_id), "no_work")

    async def shown(self) -> instances.Instance:
        return self._platform.instance(self._instance.instance_id)

    async def instance(self) -> instances.Instance:
        return self._platform.records.instances[self._instance.instance_id]

    async def member(self, member_id: str) -> instances.Member:
        return self._platform.member(member_id)

    async def artifact(self) -> artifacts.Artifact:
        return self._platform.add_artifact(self._instance, "tool", CONTENT)

    async def arrive(self, placement: placements.ArtifactPlacement) -> None:
        """Machines in memory have it as soon as they are asked."""

    async def foreign(self) -> operations.Operation:
        instance = self._platform.add_instance(
            {"head": ["f-0"], "hand": ["f-1"]}, app_slug=OTHER["slug"], name="foreign"
        )
        return self._platform.request(instance, "deploy")

    async def allow_replace(self) -> None:
        present = await self.instance()
        self._platform.records.instances[present.instance_id] = msgspec.structs.replace(present, inputs={"speed": 15})

    async def spare(self) -> str:
        self._platform.add_spare("free-0")
        return rows.allocation_id("free-0")

    async def lose(self, member_id: str) -> None:
        self._platform.lose(self._platform.member(member_id).node_name)

    async def recover(self, node_name: str) -> None:
        self._platform.records.lost.discard(node_name)
        self._platform.add_spare(node_name)

    async def breaker(self) -> instances.BreakerState:
        return self._platform.breaker(self._instance, "hand")

    async def reset_breaker(self) -> None:
        self._platform.reset_breaker(self._instance, "hand")


@pytest.fixture
async def sides(world: World, clock: FakeClock) -> AsyncIterator[tuple[Side, Side]]:
    steward = msgspec.convert(DECLARED["steward"], catalog.StewardSpec)
    platform = FakePlatform("toy", secret_purposes=["role_join"], steward=steward, clock=clock)
    platform.add_version(msgspec.convert({**MANIFEST, **CLUSTERED, **DECLARED}, catalog.Manifest))
    transport = httpx.ASGITransport(app=platform.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://fake") as client:
        copy = World(world.site, clock, client, project_id=platform.project_id)
        key = identity.ServiceAccountLogin(key_id=platform.key_id, client_secret=platform.client_secret)
        copy.token = (await copy.call(identity.SERVICE_ACCOUNT_TOKEN, key)).access_token
        fake = Fake(platform, Controller(copy, copy.token))
        yield fake, Real(await Cluster.running(world, **DECLARED))


async def hands(side: Side) -> list[str]:
    where = {"instance_id": (await side.instance()).instance_id}
    listed = await side.controller.world.call(instances.MEMBER_LIST, token=side.controller.token, **where)
    live = [member for member in listed.items if member.status not in lifecycles.GONE_MEMBER]
    return [member.member_id for member in live if member.component_key == "hand"]
