"""An app controller as a script: it takes operations, reports what a test orders, and can fall silent any moment.

It has a service account's token and the public API, as every controller does. `Cluster` is what people do around it."""

import datetime
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from gpuaas_contract import access, capacity, catalog, events, holds, instances, node, operations, runtime, secrets
from gpuaas_contract.endpoint import Endpoint
from platform_world import MANIFEST, Node, World

Answer = TypeVar("Answer")

DEADLINE_S = 600
HEAD: dict[str, Any] = {
    "component_key": "head",
    "min": 1,
    "max": 1,
    "operations": ["drain", "resume", "replace", "repair"],
}
HAND: dict[str, Any] = {
    "component_key": "hand",
    "min": 1,
    "max": 100,
    "operations": ["add", "drain", "resume", "remove", "replace", "repair"],
}
CHANGEABLE_FORM: dict[str, Any] = {
    **MANIFEST["deploy_form"],
    "properties": {
        **MANIFEST["deploy_form"]["properties"],
        "color": {"enum": ["red", "green"], catalog.CHANGEABLE: True},
        "speed": {"type": "integer", "maximum": 10_000, catalog.CHANGEABLE: True},
    },
}
CLUSTERED: dict[str, Any] = {
    "roles": [HEAD, HAND],
    "instance_operations": ["stop", "start", "restart", "upgrade", "rollback", "reconfigure"],
    "deploy_form": CHANGEABLE_FORM,
    "secret_purposes": ["role_join"],
    "deadlines_s": dict.fromkeys(operations.DEADLINES_S, DEADLINE_S),
}
"""What a test's app declares beside `MANIFEST`: everything there is to operate."""

CHANGES: dict[str, Endpoint[Any, operations.Operation]] = {
    "stop": instances.STOP,
    "start": instances.START,
    "restart": instances.RESTART,
    "upgrade": instances.UPGRADE,
    "rollback": instances.ROLLBACK,
    "reconfigure": instances.RECONFIGURE,
    "decommission": instances.DECOMMISSION,
}

_TO_READY, _OUT, _AWAY = ("provisioning", "joining", "ready"), ("draining", "drained"), ("removing", "removed")
WAYS: dict[str, tuple[str, ...]] = {
    "deploy": _TO_READY,
    "add": _TO_READY,
    "drain": _OUT,
    "stop": _OUT,
    "resume": ("ready",),
    "repair": ("ready",),
    "start": ("ready",),
    "restart": (*_OUT, "ready"),
    "upgrade": (*_OUT, "ready"),
    "rollback": (*_OUT, "ready"),
    "reconfigure": ("ready",),
    "remove": _AWAY,
    "decommission": _AWAY,
    "replace": (*_OUT, "removing", *_TO_READY),
}
"""What a controller reports of a target when all goes well."""


def with_hands(**changes: Any) -> dict[str, Any]:
    """The app, with a role `hand` that differs in this."""
    return {**CLUSTERED, "roles": [HEAD, {**HAND, **changes}]}


def evidence(now: datetime.datetime, state: str = "idle", *, age_s: float = 0, **more: Any) -> Any:
    seen_at = now - datetime.timedelta(seconds=age_s)
    return msgspec.to_builtins({"state": state, "source": "script", "observed_at": seen_at, **more})


@dataclass
class Held:
    """An operation under a lease."""

    world: World
    token: str
    claim: runtime.Claim

    @property
    def operation(self) -> operations.Operation:
        assert self.claim.operation is not None
        return self.claim.operation

    @property
    def operation_id(self) -> str:
        return self.operation.operation_id

    @property
    def member_ids(self) -> list[str]:
        return [target.member_id for target in self.operation.targets]

    async def send(self, endpoint: Endpoint[Any, Answer], body: dict[str, Any] | None = None, **params: str) -> Answer:
        request = {"epoch": self.claim.epoch, **(body or {})}
        return await self.world.call(endpoint, request, token=self.token, operation_id=self.operation_id, **params)

    async def heartbeat(self, lease_s: int = 15) -> operations.Receipt:
        return await self.send(runtime.HEARTBEAT, {"lease_s": lease_s})

    async def step(self, name: str, state: str = "succeeded", member_id: str = "") -> operations.Receipt:
        return await self.send(runtime.STEP_REPORT, {"name": name, "state": state, "member_id": member_id})

    async def report(self, member_id: str, *statuses: str, **more: Any) -> operations.Receipt:
        """The last of the answers."""
        for status in statuses:
            answer = await self.send(runtime.MEMBER_REPORT, {"status": status, **more}, member_id=member_id)
        return answer

    async def publish(self) -> instances.AccessBundle:
        return await self.send(runtime.ACCESS_PUBLISH, {"notes": ["knock twice"]})

    async def issue(self, name: str = "join-key") -> secrets.IssuedSecret:
        return await self.send(secrets.SECRET_ISSUE, {"purpose": "role_join", "name": name})

    async def open(self, delivery_id: str) -> secrets.OpenedDelivery:
        request = {"operation_id": self.operation_id}
        return await self.send(secrets.DELIVERY_OPEN, request, delivery_id=delivery_id)

    async def enter(self, allocation_id: str) -> access.MachineAccess:
        request = {"operation_id": self.operation_id, "epoch": self.claim.epoch}
        return await self.world.machine_access(self.token, allocation_id, **request)

    async def complete(self, **more: Any) -> operations.Operation:
        return await self.send(runtime.COMPLETE, more)

    async def fail(self, failure_class: str = "repairable", code: str = "app_failed") -> operations.Operation:
        return await self.send(runtime.FAIL, {"code": code, "message": "it broke", "failure_class": failure_class})

    async def bring(self, member_ids: Iterable[str]) -> None:
        """Take these targets the whole way."""
        status = {member.member_id: member.status for member in self.claim.members}
        for member_id in member_ids:
            way = WAYS[self.operation.kind]
            way = way[way.index(status[member_id]) + 1 :] if status[member_id] in way[:-1] else way
            await self.report(member_id, *way, evidence=evidence(self.world.clock()))

    async def carry_out(self) -> operations.Operation:
        await self.bring(self.member_ids)
        return await self.complete()


@dataclass
class Controller:
    world: World
    token: str
    holder: str = "controller"

    @classmethod
    async def start(cls, world: World, name: str = "controller") -> "Controller":
        return cls(world, await world.service_account(name), name)

    async def claim(self, lease_s: int = 15, wait_s: int = 0) -> runtime.Claim:
        body = runtime.ClaimOperation(
            app_slug="toy", holder=self.holder, claim_id=str(uuid.uuid4()), lease_s=lease_s, wait_s=wait_s
        )
        return await self.world.call(runtime.CLAIM, body, token=self.token)

    async def take(self, lease_s: int = 15, wait_s: int = 0) -> Held:
        return Held(self.world, self.token, await self.claim(lease_s, wait_s))

    async def finds_nothing(self) -> bool:
        return (await self.claim()).operation is None

    async def carry_out(self) -> operations.Operation:
        return await (await self.take()).carry_out()


@dataclass
class Cluster:
    """A running instance of the app, its controller, and the people who ask things of it."""

    world: World
    controller: Controller
    instance_id: str

    @classmethod
    async def running(cls, world: World, hands: int = 2, **changes: Any) -> "Cluster":
        cluster = await cls.requested(world, hands, **changes)
        await cluster.controller.carry_out()
        return cluster

    @classmethod
    async def requested(cls, world: World, hands: int = 2, **changes: Any) -> "Cluster":
        """Its deploy waits for the controller."""
        await world.entitled_app(**{**CLUSTERED, **changes})
        controller = await Controller.start(world)
        return cls(world, controller, (await world.deploy(hands=hands)).instance.instance_id)

    async def instance(self) -> instances.Instance:
        return await self.world.call(instances.INSTANCE_GET, instance_id=self.instance_id)

    async def status(self) -> str:
        return (await self.instance()).status

    async def members(self) -> dict[str, instances.Member]:
        return {member.member_id: member for member in await self.world.members(self.instance_id)}

    async def member(self, member_id: str) -> instances.Member:
        return await self.world.call(instances.MEMBER_GET, instance_id=self.instance_id, member_id=member_id)

    async def hands(self) -> list[str]:
        """Ids of the live ones."""
        gone = ("removed", "tombstoned")
        members = (await self.members()).values()
        return [member.member_id for member in members if member.component_key == "hand" and member.status not in gone]

    async def statuses(self, *member_ids: str) -> list[str]:
        members = await self.members()
        return [members[member_id].status for member_id in member_ids]

    async def operate(self, kind: str, *member_ids: str, token: str | None = None, **more: Any) -> operations.Operation:
        body = {"kind": kind, "member_ids": list(member_ids), **more}
        return await self.world.call(instances.MEMBER_OPERATION_CREATE, body, token=token, instance_id=self.instance_id)

    async def add(self, *allocation_ids: str, **more: Any) -> operations.Operation:
        return await self.operate("add", component_key="hand", allocation_ids=list(allocation_ids), **more)

    async def change(self, verb: str, token: str | None = None, **body: Any) -> operations.Operation:
        return await self.world.call(CHANGES[verb], body, token=token, instance_id=self.instance_id)

    async def hold(self, member_id: str, kind: str, *, token: str | None = None, ttl_s: int = 3600) -> holds.Hold:
        body = {"name": "bad-fan", "kind": kind, "reason": "the fan is loud", "ttl_s": ttl_s}
        return await self.world.call(
            holds.HOLD_PLACE, body, token=token, instance_id=self.instance_id, member_id=member_id
        )

    async def machines(self, count: int, name: str = "spare") -> list[str]:
        """Ids of new active allocations."""
        return [(await self.world.allocation(f"{name}-{number}")).allocation_id for number in range(count)]

    async def lose(self, member_id: str) -> None:
        """Let time pass until the platform marks the node of the member as lost; all other nodes send heartbeats."""
        silent, settings = (await self.member(member_id)).node_name, self.world.site.settings
        for _ in range(int(settings.node_lost_after_s / settings.sweep_interval_s) + 2):
            self.world.clock.forward(settings.sweep_interval_s)
            for name, machine in self.world.nodes.items():
                if name != silent:
                    await heartbeat(self.world, machine)
            await self.world.sweep()

    async def bound(self) -> set[str]:
        """Allocations that carry this instance."""
        allocations = await self.world.call(capacity.ALLOCATION_LIST, query={"page_size": 500})
        return {
            allocation.allocation_id
            for allocation in allocations.items
            if self.instance_id in allocation.used_by_instance_ids
        }

    async def occupied(self) -> set[str]:
        """Allocations that live members sit on."""
        gone = ("removed", "tombstoned")
        return {member.allocation_id for member in (await self.members()).values() if member.status not in gone}

    async def event_payloads(self, kind: str) -> list[dict[str, Any]]:
        """Payloads of the events of this type, oldest first."""
        query = {"app_instance_id": self.instance_id, "limit": 500}
        recorded = await self.world.call(events.EVENT_LIST, query=query)
        return [event.payload for event in recorded.items if event.type == kind]


async def heartbeat(world: World, machine: Node) -> None:
    facts = capacity.Facts(hostname=machine.name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    report = node.NodeStatusReport(agent_version="1", boot_id="b", facts=facts)
    await world.call(node.STATUS, report, token=machine.token)


async def take_exit(
    world: World, operation: operations.Operation, name: operations.ExitName, token: str | None = None, **more: Any
) -> operations.Operation:
    body = {"reason": "asked by the test", **more}
    return await world.call(operations.EXITS[name], body, token=token, operation_id=operation.operation_id)


async def exits(world: World, operation: operations.Operation) -> set[str]:
    """Names of the exits that this caller may take."""
    current = await world.operation(operation.operation_id)
    return {way.name for way in current.exits if way.permitted}


async def publish_version(world: World, version: str, **changes: Any) -> None:
    await world.call(catalog.VERSION_REGISTER, {**MANIFEST, **CLUSTERED, "version": version, **changes})
    await world.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug="toy", version=version)
