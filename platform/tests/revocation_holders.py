"""People, service accounts and nodes that hold something, and the ways to revoke what they may do."""

import asyncio
import dataclasses
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from gpuaas_contract import (
    access,
    bindings,
    capacity,
    catalog,
    events,
    identity,
    instances,
    node,
    org_accounts,
    runtime,
    sessions,
    users,
)
from gpuaas_platform import server
from gpuaas_platform.edge import http
from gpuaas_platform.edge.exchange import Message
from platform_world import MANIFEST, PASSWORD, World
from scripted_controller import CLUSTERED, Held, take_exit


@dataclasses.dataclass
class Holder:
    """Who loses a right, and what they hold. Fields that this kind of holder does not have are empty."""

    world: World
    token: str
    request: Callable[[int], Awaitable[httpx.Response]]
    """A request that is a long poll if the number of seconds to wait is not 0."""
    actor_id: str = ""
    part_id: str = ""
    """Id of the role binding of a person, or of the key of a service account."""
    project_id: str = ""
    held: Held | None = None
    delivery_id: str = ""
    granted: access.MachineAccess | None = None
    node_name: str = ""

    def working(self) -> Held:
        assert self.held is not None
        return self.held

    async def grant(self) -> access.MachineGrant:
        assert self.granted is not None
        grants = (await self.world.call(access.GRANT_LIST)).items
        return next(grant for grant in grants if grant.grant_id == self.granted.grant_id)

    async def refused_serials(self) -> list[str]:
        """Return the serials in the next task of the machine, which it must refuse."""
        task = await self.world.next_task(self.world.nodes[self.node_name])
        return [str(serial) for serial in task["params"]["revoked_serials"]] if task else []


async def person(world: World) -> Holder:
    """An admin of a project, with a certificate for a machine."""
    ada = await world.person("ada")
    binding = await world.call(bindings.PROJECT_BINDING_CREATE, {"user_id": ada.user_id, "role": "project_admin"})
    allocation = await world.allocation("n1")
    granted = await world.machine_access(ada.token, allocation.allocation_id)
    return Holder(
        world,
        ada.token,
        await _events(world, ada.token, world.project_id),
        actor_id=ada.user_id,
        part_id=binding.binding_id,
        project_id=world.project_id,
        granted=granted,
        node_name="n1",
    )


async def visitor(world: World) -> Holder:
    """A member of a project that owns nothing."""
    org_id = (await world.call(identity.ORG_LIST)).items[0].org_id
    project = await world.call(identity.PROJECT_CREATE, {"name": "spare"}, org_id=org_id)
    ada = await world.person("ada", "project_member", project.project_id)
    request = await _events(world, ada.token, project.project_id)
    return Holder(world, ada.token, request, project_id=project.project_id)


async def account(world: World) -> Holder:
    """A controller at work on a deploy, with a certificate for a machine and a secret that it has not opened yet."""
    await world.entitled_app(**CLUSTERED)
    made = await world.call(identity.SERVICE_ACCOUNT_CREATE, {"name": "controller", "apps": ["toy"]})
    key = await world.call(identity.SERVICE_ACCOUNT_KEY_CREATE, service_account_id=made.service_account_id)
    login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
    token = (await world.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
    return await _at_work(world, token, made.service_account_id, key.key_id)


async def account_of_org(world: World) -> Holder:
    """The same, with an account of the organisation that the project accepts."""
    await world.entitled_app(**CLUSTERED)
    fleet = await world.org_account(accept=[world.project_id])
    return await _at_work(world, fleet.token, fleet.service_account_id, fleet.key_id)


async def _at_work(world: World, token: str, account_id: str, key_id: str) -> Holder:
    deployed = await world.deploy()
    held = Held(world, token, await world.claim(token, lease_s=60))
    (head,) = [member for member in deployed.members if member.component_key == "head"]

    async def claim(wait_s: int) -> httpx.Response:
        body = {"app_slug": "toy", "holder": "test", "claim_id": str(uuid.uuid4()), "lease_s": 15, "wait_s": wait_s}
        return await world.send(runtime.CLAIM, body, token=token)

    return Holder(
        world,
        token,
        claim,
        actor_id=account_id,
        part_id=key_id,
        project_id=world.project_id,
        held=held,
        delivery_id=(await held.issue()).delivery_id,
        granted=await held.enter(head.allocation_id),
        node_name="one-head",
    )


async def deployer(world: World) -> Holder:
    """The same controller; its project asks for one more instance."""
    holder = await account(world)
    head, hand = [(await world.allocation(name)).allocation_id for name in ("more-1", "more-2")]
    inputs = {"head_allocation": head, "hand_allocations": [hand]}
    body = instances.DeployInstance(name="two", app_slug=MANIFEST["slug"], topology="pair", inputs=inputs)

    async def deploy(_: int) -> httpx.Response:
        return await world.send(instances.INSTANCE_CREATE, body, query={"dry_run": "true"})

    return dataclasses.replace(holder, request=deploy)


async def machine(world: World) -> Holder:
    """A node without an allocation."""
    enrolled = await world.node("n1")

    async def next_task(wait_s: int) -> httpx.Response:
        return await world.send(node.TASK_NEXT, token=enrolled.token, query={"wait_s": wait_s})

    return Holder(world, enrolled.token, next_task, actor_id=enrolled.node_id)


async def _events(world: World, token: str, project_id: str) -> Callable[[int], Awaitable[httpx.Response]]:
    newest = (await world.call(events.EVENT_LIST, project_id=project_id)).cursor

    async def request(wait_s: int) -> httpx.Response:
        query = {"after": newest, "wait_s": wait_s}
        return await world.send(events.EVENT_LIST, token=token, query=query, project_id=project_id)

    return request


async def end_session(holder: Holder) -> None:
    session_id = (await holder.world.call(identity.ME, token=holder.token)).session_id
    await holder.world.call(sessions.SESSION_END, token=holder.token, session_id=session_id)


async def set_password(holder: Holder) -> None:
    await holder.world.call(users.USER_SET_PASSWORD, {"password": f"new {PASSWORD}"}, user_id=holder.actor_id)


async def disable_user(holder: Holder) -> None:
    await holder.world.call(users.USER_DISABLE, user_id=holder.actor_id)


async def remove_role(holder: Holder) -> None:
    await holder.world.call(bindings.PROJECT_BINDING_DELETE, binding_id=holder.part_id)


async def revoke_key(holder: Holder) -> None:
    where = {"service_account_id": holder.actor_id, "key_id": holder.part_id}
    await holder.world.call(identity.SERVICE_ACCOUNT_KEY_REVOKE, **where)


async def disable_account(holder: Holder) -> None:
    await holder.world.call(identity.SERVICE_ACCOUNT_DISABLE, service_account_id=holder.actor_id)


async def dismiss_account(holder: Holder) -> None:
    await holder.world.call(org_accounts.DISMISS, service_account_id=holder.actor_id)


async def delete_account_of_org(holder: Holder) -> None:
    org_id = (await holder.world.call(identity.ORG_LIST)).items[0].org_id
    await holder.world.call(org_accounts.DELETE, org_id=org_id, service_account_id=holder.actor_id)


async def unbind_account(holder: Holder) -> None:
    """Bind the account to another app. It may still claim, but not work of the first app."""
    other = {**MANIFEST, "slug": "tool", "permissions": {}, "actions": []}
    await holder.world.call(catalog.VERSION_REGISTER, other)
    await holder.world.call(catalog.VERSION_PUBLISH, {}, app_slug="tool", version=other["version"])
    await holder.world.call(identity.SERVICE_ACCOUNT_BIND, {"apps": ["tool"]}, service_account_id=holder.actor_id)


async def withdraw_entitlement(holder: Holder) -> None:
    await holder.world.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=False), app_slug="toy")


async def retire_node(holder: Holder) -> None:
    await holder.world.call(capacity.NODE_RETIRE, {"reason": "sold"}, node_id=holder.actor_id)


async def force_end(holder: Holder) -> None:
    await take_exit(holder.world, holder.working().operation, "force_complete")


async def delete_project(holder: Holder) -> None:
    await holder.world.call(identity.PROJECT_DELETE, project_id=holder.project_id)


async def open_stream(holder: Holder) -> asyncio.Task[None]:
    """Return the task that serves an event stream of the project, after its head was sent. It ends with the stream."""
    application, has_begun = http.application(holder.world.site, server.DOMAINS), asyncio.Event()
    path = events.EVENT_STREAM.path.format(project_id=holder.project_id).encode()
    headers = [(b"authorization", f"Bearer {holder.token}".encode())]
    scope: dict[str, Any] = {"type": "http", "method": "GET", "path": path.decode(), "raw_path": path}

    async def receive() -> Message:
        left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        return await left  # the client stays

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            has_begun.set()

    serving = asyncio.create_task(application({**scope, "query_string": b"", "headers": headers}, receive, send))
    await has_begun.wait()
    return serving
