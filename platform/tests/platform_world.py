"""A small world over a real platform: an admin, projects, nodes and a made-up app, all made through the public API."""

import base64
import datetime
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import (
    access,
    capacity,
    catalog,
    credentials,
    errors,
    identity,
    instances,
    node,
    operations,
    org_accounts,
    runtime,
    users,
)
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform.access.machines import authority
from gpuaas_platform.allocations import reconcile as allocations_reconcile
from gpuaas_platform.allocations.people import reconcile as people_reconcile
from gpuaas_platform.call import Site, system_origin
from gpuaas_platform.catalog import store as catalog_store
from gpuaas_platform.identity import service as identity_service
from gpuaas_platform.identity import store as identity_store
from gpuaas_platform.kit import retention
from gpuaas_platform.nodes import reconcile as nodes_reconcile
from gpuaas_platform.record import retention as events_retention

Body = TypeVar("Body")
Answer = TypeVar("Answer")

PASSWORD = "correct horse battery staple"
MANIFEST: dict[str, Any] = {
    "slug": "toy",
    "display_name": "Toy",
    "version": "1.0.0",
    "runtime_backend": "toy",
    "operating_modes": ["tenant_dedicated"],
    "control_plane_scopes": ["project"],
    "roles": [
        {"component_key": "head", "min": 1, "max": 1},
        {"component_key": "hand", "min": 1, "max": 3, "operations": ["add", "drain", "resume", "remove"]},
    ],
    "topologies": {"pair": {"head": "head_allocation", "hand": "hand_allocations"}},
    "deploy_form": {
        "type": "object",
        "properties": {
            "head_allocation": {"type": "string", "x-gpuaas-picker": "allocation"},
            "hand_allocations": {"type": "array", "items": {"type": "string"}},
            "color": {"enum": ["red", "green"]},
            "host_key": {"type": "string", "x-gpuaas-picker": "access_credential"},
        },
        "required": ["head_allocation", "hand_allocations"],
        "additionalProperties": False,
    },
    "deadlines_s": {"deploy": 600},
    "secret_purposes": ["artifact_pull", "role_join"],
    "permissions": {"toy.wall.paint": {"meaning": "paint walls", "roles": ["project_member"]}},
    "actions": [
        {"name": "paint", "title": "Paint a wall", "permission": "toy.wall.paint", "input_schema": {"type": "object"}}
    ],
}


class FakeClock:
    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now

    def forward(self, seconds: float) -> None:
        self.now += datetime.timedelta(seconds=seconds)


class RealClock(FakeClock):
    """Controllers and agents have the time of day."""

    def __call__(self) -> datetime.datetime:
        return datetime.datetime.now(datetime.UTC)


async def forget_old_events(site: Site) -> None:
    await retention.sweep(site.database, site.settings, site.clock(), [events_retention.RETAINED])


@dataclass
class Node:
    node_id: str
    name: str
    key: Ed25519PrivateKey
    token: str


@dataclass(frozen=True)
class OrgAccount:
    """A service account of an organisation that is signed in."""

    service_account_id: str
    org_id: str
    key_id: str
    token: str


@dataclass(frozen=True)
class Person:
    user_id: str
    name: str
    token: str


@dataclass
class World:
    site: Site
    clock: FakeClock
    http: httpx.AsyncClient
    token: str = ""
    project_id: str = ""
    nodes: dict[str, Node] = field(default_factory=dict)
    """Those that were enrolled here, by name."""
    waiting: list[tuple[str, str]] = field(default_factory=list)
    """Project and name of service accounts that were made before their app."""

    @classmethod
    async def make(cls, site: Site, clock: FakeClock, client: httpx.AsyncClient) -> "World":
        await authority.start(site)
        await identity_service.set_password(site, system_origin(clock()), "admin", PASSWORD, "platform_admin")
        world = cls(site, clock, client)
        world.token = (await world.call(identity.LOGIN, identity.Login(name="admin", password=PASSWORD))).access_token
        org = await world.call(identity.ORG_CREATE, {"name": "acme"})
        project = await world.call(identity.PROJECT_CREATE, identity.CreateProject(name="research"), org_id=org.org_id)
        world.project_id = project.project_id
        return world

    async def send(
        self,
        endpoint: Endpoint[Body, Answer],
        body: Any = None,
        *,
        token: str | None = None,
        key: str | None = None,
        query: dict[str, Any] | None = None,
        headers: dict[str, str] | None = None,
        **params: str,
    ) -> httpx.Response:
        params.setdefault("project_id", self.project_id)
        if endpoint is identity.ORG_CREATE and isinstance(body, dict):
            body = {"first_admin": "admin", **body}
        sent = {"Authorization": f"Bearer {self.token if token is None else token}", **(headers or {})}
        if endpoint.mutates and key != "":
            sent["X-Idempotency-Key"] = key or str(uuid.uuid4())
        if endpoint.guarded:
            sent.setdefault("If-Match", "*")
        return await self.http.request(
            endpoint.method,
            endpoint.path.format(**params),
            content=msgspec.json.encode(body) if body is not None else b"",
            params=query,
            headers=sent,
        )

    async def call(self, endpoint: Endpoint[Body, Answer], body: Any = None, **options: Any) -> Answer:
        response = await self.send(endpoint, body, **options)
        if response.is_error:
            problem = msgspec.json.decode(response.content, type=errors.Problem)
            raise errors.BY_CODE[problem.code](problem.message, details=problem.details, fix=problem.fix)
        assert response.status_code == endpoint.status
        return msgspec.json.decode(response.content, type=endpoint.response)

    async def service_account(
        self, name: str = "controller", project_id: str = "", apps: Sequence[str] | None = None
    ) -> str:
        """A new service account's token. Without `apps` it operates the made-up app, as soon as that is registered."""
        project_id = project_id or self.project_id
        if apps is None:
            registered = await catalog_store.app_exists(self.site.database.reader, "toy")
            apps = ["toy"] if registered else []
            self.waiting += [] if registered else [(project_id, name)]
        body = identity.CreateServiceAccount(name=name, apps=list(apps))
        account = await self.call(identity.SERVICE_ACCOUNT_CREATE, body, project_id=project_id)
        key = await self.call(
            identity.SERVICE_ACCOUNT_KEY_CREATE,
            project_id=project_id,
            service_account_id=account.service_account_id,
        )
        login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
        return (await self.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token

    async def org_account(self, name: str = "fleet", *, org_id: str = "", accept: Sequence[str] = ()) -> OrgAccount:
        """A service account of the organisation for the made-up app. The projects in `accept` accept it."""
        org_id = org_id or (await self.call(identity.ORG_LIST)).items[0].org_id
        account = await self.call(org_accounts.CREATE, {"name": name, "apps": ["toy"]}, org_id=org_id)
        where = {"org_id": org_id, "service_account_id": account.service_account_id}
        key = await self.call(org_accounts.KEY_CREATE, **where)
        login = identity.ServiceAccountLogin(key_id=key.key_id, client_secret=key.client_secret)
        token = (await self.call(identity.SERVICE_ACCOUNT_TOKEN, login)).access_token
        for project_id in accept:
            await self.call(org_accounts.ACCEPT, project_id=project_id, service_account_id=account.service_account_id)
        return OrgAccount(account.service_account_id, org_id, key.key_id, token)

    async def person(self, name: str, role: str = "", scope: str = "") -> Person:
        """A user who is signed in. The role is put in place directly: tests of granting do it over the API."""
        made = await self.call(users.USER_CREATE, users.CreateUser(name=name, password=PASSWORD))
        if role:
            await self.site.database.write(lambda tx: identity_store.bind(tx, made.user_id, role, scope))
        return Person(made.user_id, name, await self.sign_in(name))

    async def sign_in(self, name: str, password: str = PASSWORD) -> str:
        return (await self.call(identity.LOGIN, identity.Login(name=name, password=password))).access_token

    async def node(self, name: str, *, sku: str = "standard", region: str = "local") -> Node:
        """Enrol a node the way its agent does."""
        admitted = capacity.CreateEnrolmentToken(name=name, sku=sku, region=region)
        token = await self.call(capacity.ENROLMENT_CREATE, admitted)
        key = Ed25519PrivateKey.generate()
        enrolled = await self.call(node.ENROL, enrol_body(token.token, name, key), token="")
        machine = Node(enrolled.node_id, name, key, "")
        machine.token = await self.node_login(machine)
        self.nodes[name] = machine
        return machine

    async def node_login(self, machine: Node, nonce: str = "") -> str:
        body = login_body(machine, int(self.clock().timestamp()), nonce or uuid.uuid4().hex)
        return (await self.call(node.NODE_TOKEN, body, token="")).access_token

    async def next_task(self, machine: Node) -> dict[str, Any] | None:
        answer = await self.call(node.TASK_NEXT, token=machine.token)
        return msgspec.json.decode(answer.task.payload) if answer.task else None

    async def finish_task(self, machine: Node, status: str = "succeeded") -> None:
        task = await self.next_task(machine)
        assert task is not None
        error = None if status == "succeeded" else {"code": "boom", "message": "it broke"}
        body = {"status": status, "result": {}, "error": error}
        await self.call(node.TASK_RESULT, body, token=machine.token, task_id=task["task_id"])

    async def allocation(self, name: str) -> capacity.Allocation:
        """An active allocation on a new node of that name."""
        machine = await self.node(name)
        (created,) = (await self.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))).items
        await self.finish_task(machine)
        return await self.call(capacity.ALLOCATION_GET, allocation_id=created.allocation_id)

    async def entitled_app(self, **changes: Any) -> None:
        await self.call(catalog.VERSION_REGISTER, {**MANIFEST, **changes})
        await self.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug="toy", version="1.0.0")
        await self.call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=True), app_slug="toy")
        while self.waiting:
            project_id, name = self.waiting.pop()
            where = {"project_id": project_id, "service_account_id": name}
            await self.call(identity.SERVICE_ACCOUNT_BIND, {"apps": ["toy"]}, **where)

    async def deploy(self, name: str = "one", hands: int = 1, **more: Any) -> instances.Deployed:
        """`more` are inputs beside the allocations."""
        head = await self.allocation(f"{name}-head")
        others = [await self.allocation(f"{name}-hand-{number}") for number in range(hands)]
        inputs = {
            "head_allocation": head.allocation_id,
            "hand_allocations": [allocation.allocation_id for allocation in others],
            **more,
        }
        body = instances.DeployInstance(name=name, app_slug="toy", topology="pair", inputs=inputs)
        return await self.call(instances.INSTANCE_CREATE, body)

    async def claim(self, token: str, *, claim_id: str = "", lease_s: int = 15) -> runtime.Claim:
        body = runtime.ClaimOperation(
            app_slug="toy", holder="test", claim_id=claim_id or str(uuid.uuid4()), lease_s=lease_s
        )
        return await self.call(runtime.CLAIM, body, token=token)

    async def report(self, token: str, claim: runtime.Claim, member_id: str, *statuses: str, **more: Any) -> None:
        assert claim.operation is not None
        for status in statuses:
            await self.call(
                runtime.MEMBER_REPORT,
                {"epoch": claim.epoch, "status": status, **more},
                token=token,
                operation_id=claim.operation.operation_id,
                member_id=member_id,
            )

    async def complete(self, token: str, claim: runtime.Claim) -> operations.Operation:
        assert claim.operation is not None
        body = runtime.CompleteOperation(epoch=claim.epoch)
        return await self.call(runtime.COMPLETE, body, token=token, operation_id=claim.operation.operation_id)

    async def running_instance(self, token: str, hands: int = 1, **more: Any) -> instances.Deployed:
        deployed = await self.deploy(hands=hands, **more)
        claim = await self.claim(token)
        for member in claim.members:
            await self.report(token, claim, member.member_id, "provisioning", "joining", "ready")
        await self.complete(token, claim)
        return deployed

    async def sweep(self) -> None:
        """Run the loops of nodes and of allocations once."""
        await nodes_reconcile.sweep(self.site)
        await allocations_reconcile.sweep(self.site)

    async def members(self, instance_id: str) -> list[instances.Member]:
        return (await self.call(instances.MEMBER_LIST, instance_id=instance_id)).items

    async def operation(self, operation_id: str) -> operations.Operation:
        return await self.call(operations.OPERATION_GET, operation_id=operation_id)

    async def credential(self, name: str = "fleet", private_key: str = "") -> credentials.Credential:
        """A customer's key in custody; a new one unless it is given."""
        body = credentials.CreateCredential(name=name, private_key=private_key or ssh_private_key(), username="ops")
        return await self.call(credentials.CREDENTIAL_CREATE, body)

    async def kept(self) -> list[str]:
        """Whose values are in custody: secrets and credentials, not the platform's own key."""
        rows = await self.site.database.reader.all("SELECT ref FROM custody WHERE ref LIKE 'sec%' ORDER BY ref")
        return [row[0] for row in rows]

    async def sweep_people(self) -> None:
        """Run the loop of people once."""
        await people_reconcile.sweep(self.site)

    async def install_people(self, machine: Node, **result: Any) -> list[dict[str, Any]]:
        """Run the loop of people and report that the machine made the accounts; return what it was asked for."""
        await self.sweep_people()
        task = await self.next_task(machine)
        assert task is not None
        assert task["type"] == "allocation.people"
        body = {"status": "succeeded", "result": result}
        await self.call(node.TASK_RESULT, body, token=machine.token, task_id=task["task_id"])
        return list(task["params"]["people"])

    async def machine_access(self, token: str, allocation_id: str, **body: Any) -> access.MachineAccess:
        """Get a certificate: as root, unless the request names another way."""
        way = {} if {"operation_id", "instance_id"} & set(body) else {"as": "root"}
        request = {"public_key": ssh_public_key(Ed25519PrivateKey.generate()), **way, **body}
        return await self.call(access.MACHINE_ACCESS, request, token=token, allocation_id=allocation_id)


def enrol_body(token: str, name: str, key: Ed25519PrivateKey) -> node.Enrol:
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    facts = capacity.Facts(hostname=name, cpus=4, memory_mb=1000, addresses=["127.0.0.1"])
    return node.Enrol(
        token=token, name=name, public_key_pem=public.decode(), ssh_host_public_key="ssh-ed25519 AAAA", facts=facts
    )


def login_body(machine: Node, timestamp_s: int, nonce: str) -> node.NodeLogin:
    signed_text = f"gpuaas-node-token\n{machine.node_id}\n{timestamp_s}\n{nonce}".encode()
    signature = base64.b64encode(machine.key.sign(signed_text)).decode()
    return node.NodeLogin(node_id=machine.node_id, timestamp_s=timestamp_s, nonce=nonce, signature=signature)


def ssh_private_key() -> str:
    return openssh_private(Ed25519PrivateKey.generate())


def openssh_private(key: Ed25519PrivateKey) -> str:
    raw = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    return raw.decode()


def ssh_public_key(key: Ed25519PrivateKey) -> str:
    raw = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return raw.decode()
