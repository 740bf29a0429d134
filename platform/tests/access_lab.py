"""Two real machines with agents under a real server: what tests of machine access stand on. Needs root on Linux."""

import asyncio
import contextlib
import datetime
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_identity
from cryptography.hazmat.primitives.serialization.ssh import SSHCertificate
from gpuaas_contract import access, bindings, capacity, catalog, events, identity, instances, runtime, users
from gpuaas_platform import server
from gpuaas_platform.access.machines import authority, rules
from gpuaas_platform.access.machines.service import _sign
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.testing import free_port
from server_process import APP, Cloud, ServerProcess

LAB = "access"
BIN = Path(sys.executable).parent
READY_S = 60.0


def lab_command(*arguments: str) -> list[str]:
    return [str(BIN / "gpuaas-lab"), arguments[0], "--lab", LAB, *arguments[1:]]


def lab(*arguments: str, given: str = "") -> str:
    ended = subprocess.run(lab_command(*arguments), input=given, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@dataclass
class Machines:
    """A cloud with the nodes gpu-1 and gpu-2, both allocated to one project."""

    process: ServerProcess
    data: Path
    token: str = ""
    project_id: str = ""

    @contextlib.asynccontextmanager
    async def cloud(self) -> AsyncIterator[Cloud]:
        async with httpx.AsyncClient(base_url=self.process.url, timeout=httpx.Timeout(60)) as client:
            yield Cloud(client, self.token, self.project_id)

    async def authority(self) -> Ed25519PrivateKey:
        """The platform's own, to sign what the platform never would."""
        async with server.open_site(Settings(data_dir=self.data)) as site:
            return await authority.signing_key(site)


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    lab("image")
    lab("down", "--purge")
    gateway, port = json.loads(lab("network"))["gateway"], free_port()
    process = ServerProcess(folder / "data", options=["--listen", f"{gateway}:{port}"])
    try:
        password = process.admin_password()
        with process:
            cloud_machines = Machines(process, folder / "data")
            asyncio.run(_make_cloud(cloud_machines, password, folder, f"https://{gateway}:{port}"))
            yield cloud_machines
    finally:
        lab("down", "--purge")


@dataclass
class Entrance:
    """A key pair and the certificate that goes with it."""

    key: asyncssh.SSHKey
    granted: access.MachineAccess
    folder: Path

    def with_certificate(self, certificate: str) -> "Entrance":
        changed = {name: getattr(self.granted, name) for name in self.granted.__struct_fields__}
        return Entrance(self.key, access.MachineAccess(**{**changed, "certificate": certificate}), self.folder)

    def options(self) -> dict[str, Any]:
        granted = self.granted
        certificate = asyncssh.import_certificate(granted.certificate)
        return {
            "host": granted.host,
            "port": granted.port,
            "username": granted.user,
            "client_keys": [(self.key, certificate)],
            "known_hosts": asyncssh.import_known_hosts(f"{granted.host} {granted.host_public_key}\n"),
            "agent_path": None,
            "config": None,
        }

    def ssh(self, *command: str) -> list[str]:
        """OpenSSH's own client, with this key, this certificate and this host key only."""
        granted = self.granted
        identity, hosts = self.folder / "id", self.folder / "hosts"
        self.key.write_private_key(identity)
        identity.chmod(0o600)
        certificate = self.folder / "id-cert.pub"
        certificate.write_text(granted.certificate + "\n")
        hosts.write_text(f"{granted.host} {granted.host_public_key}\n")
        options = {
            "IdentityFile": identity,
            "CertificateFile": certificate,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "PreferredAuthentications": "publickey",
        }
        flags = [flag for name, value in options.items() for flag in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "/dev/null", *flags, f"{granted.user}@{granted.host}", *command]


def ssh_answer(entrance: Entrance, *command: str) -> tuple[int, str]:
    ended = subprocess.run(entrance.ssh(*command), capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr


async def is_refused_by_both(entrance: Entrance) -> bool:
    code, output = await asyncio.to_thread(ssh_answer, entrance, "true")
    try:
        async with asyncssh.connect(**entrance.options()):
            return False
    except asyncssh.PermissionDenied:
        return code == 255 and "Permission denied" in output


def certificate_by(
    authority: Ed25519PrivateKey,
    entrance: Entrance,
    *,
    principal: str = "",
    source: str = "",
    from_s: float = -30,
    to_s: float = 600,
) -> str:
    """A certificate the platform would not sign, for the same key."""
    now, granted = datetime.datetime.now(datetime.UTC), entrance.granted
    present = load_ssh_public_identity(granted.certificate.encode())
    assert isinstance(present, SSHCertificate)
    terms = rules.CertificateTerms(
        principal=principal or granted.principal,
        source=source or present.critical_options[b"source-address"].decode(),
        key_id="made by a test",
        valid_from=now + datetime.timedelta(seconds=from_s),
        valid_to=now + datetime.timedelta(seconds=to_s),
        interactive=False,
    )
    return _sign(authority, entrance.key.export_public_key().decode(), 4711, terms)


async def enter(cloud: Cloud, folder: Path, allocation_id: str, *, token: str = "", **body: Any) -> Entrance:
    """A certificate: as root, unless the request names another way."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    way = {} if "operation_id" in body else {"as": "root"}
    request = {"public_key": key.export_public_key().decode().strip(), **way, **body}
    granted = await cloud.call(access.MACHINE_ACCESS, request, token=token or cloud.token, allocation_id=allocation_id)
    return Entrance(key, granted, folder)


async def person(cloud: Cloud, name: str, role: str = "project_member") -> tuple[str, str, str]:
    """A person with a role in the project: their id, token and role binding."""
    password = "correct horse battery staple"
    made = await cloud.call(users.USER_CREATE, {"name": name, "password": password})
    bound = await cloud.call(bindings.PROJECT_BINDING_CREATE, {"user_id": made.user_id, "role": role})
    token = await cloud.call(identity.LOGIN, {"name": name, "password": password}, token="")
    return made.user_id, token.access_token, bound.binding_id


async def enter_as_person(cloud: Cloud, folder: Path, allocation_id: str, token: str) -> Entrance:
    """A certificate for a person's own account, as soon as the machine has it."""
    async with asyncio.timeout(READY_S):
        while True:
            key = asyncssh.generate_private_key("ssh-ed25519")
            body = {"public_key": key.export_public_key().decode().strip(), "as": "person"}
            answer = await cloud.send(access.MACHINE_ACCESS, body, token=token, allocation_id=allocation_id)
            if answer.status_code == 201:
                return Entrance(key, msgspec.json.decode(answer.content, type=access.MachineAccess), folder)
            assert answer.json()["code"] == "account_pending", answer.text
            await asyncio.sleep(0.2)


async def grant_of(cloud: Cloud, grant_id: str) -> access.MachineGrant:
    grants = (await cloud.call(access.GRANT_LIST, query={"page_size": 500})).items
    return next(grant for grant in grants if grant.grant_id == grant_id)


async def until_enforced(cloud: Cloud, grant_id: str) -> None:
    """Wait until the machine has received the change. No event reports that, so this polls."""
    async with asyncio.timeout(120):
        while (await grant_of(cloud, grant_id)).enforced_at is None:  # noqa: ASYNC110 - no event reports it
            await asyncio.sleep(0.1)


@dataclass(frozen=True)
class Held:
    """The deploy of the one instance on gpu-1, under the lease of a service account."""

    token: str
    account_id: str
    operation_id: str
    epoch: int

    def body(self) -> dict[str, Any]:
        return {"operation_id": self.operation_id, "epoch": self.epoch}


async def take_up(cloud: Cloud, name: str) -> Held:
    """Claim with a new service account, also when another account holds the operation."""
    token = await cloud.service_account(name, "toy")
    account_id = (await cloud.call(identity.ME, token=token)).actor_id
    instance = await _instance(cloud)
    operator = {"operator_service_account_id": account_id, "reason": "taken over"}
    await cloud.call(instances.OPERATOR_SET, operator, instance_id=instance.instance_id)
    body = {"app_slug": "toy", "holder": name, "claim_id": name, "lease_s": 60}
    claim = await cloud.call(runtime.CLAIM, body, token=token)
    assert claim.operation is not None
    return Held(token, account_id, claim.operation.operation_id, claim.epoch)


async def _instance(cloud: Cloud) -> instances.Instance:
    deployed = (await cloud.call(instances.INSTANCE_LIST)).items
    if deployed:
        return deployed[0]
    allocation_id = (await allocations(cloud))["gpu-1"].allocation_id
    body = instances.DeployInstance(name="one", app_slug="toy", topology="solo", inputs={"allocation": allocation_id})
    return (await cloud.call(instances.INSTANCE_CREATE, body)).instance


async def allocations(cloud: Cloud) -> dict[str, capacity.Allocation]:
    listed = (await cloud.call(capacity.ALLOCATION_LIST)).items
    return {
        allocation.node_name: allocation for allocation in listed if allocation.status not in ("released", "failed")
    }


async def allocate(cloud: Cloud, name: str) -> capacity.Allocation:
    await cloud.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=name))
    async with asyncio.timeout(READY_S):
        while (allocation := (await allocations(cloud))[name]).status != "active":
            newest = (await cloud.call(events.EVENT_LIST)).cursor
            await cloud.call(events.EVENT_LIST, query={"after": newest, "wait_s": 1})
    return allocation


async def _make_cloud(cloud_machines: Machines, password: str, folder: Path, server: str) -> None:
    async with cloud_machines.cloud() as cloud:
        await cloud.sign_in(password)
        await cloud.make_project()
        await cloud.call(catalog.VERSION_PUBLISH, {}, app_slug=APP["slug"], version=APP["version"])
        await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug=APP["slug"])
        cloud_machines.token, cloud_machines.project_id = cloud.token, cloud.project_id
        names = ("gpu-1", "gpu-2")
        tokens = [await cloud.call(capacity.ENROLMENT_CREATE, {"name": name}) for name in names]
        enrolment = {
            "server": server,
            "ca_sha256": tokens[0].ca_sha256,
            "tokens": {token.name: token.token for token in tokens},
        }
        (folder / "enrolment.json").write_text(json.dumps(enrolment))
        agent = [sys.executable, "-m", "gpuaas_agent.build", str(folder / "agent.pyz")]
        await asyncio.to_thread(subprocess.run, agent, check=True, capture_output=True)
        files = ["--agent", str(folder / "agent.pyz"), "--enrol", str(folder / "enrolment.json")]
        await asyncio.to_thread(lab, "up", "--nodes", str(len(names)), *files)
        async with asyncio.timeout(READY_S):
            while len((await cloud.call(capacity.NODE_LIST)).items) < len(names):  # noqa: ASYNC110 - nodes are platform events
                await asyncio.sleep(0.2)
        for name in names:
            await allocate(cloud, name)
