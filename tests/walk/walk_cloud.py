"""A project in which a Slurm instance runs, and one more allocation; made through the API, without machines."""

import base64
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_app_slurm import controller
from gpuaas_contract import capacity, catalog, identity, instances, node, runtime
from gpuaas_sdk.auth import BearerToken, NoAuth, ServiceAccount
from gpuaas_sdk.client import Client

MACHINES = ["gpu-1", "gpu-2", "gpu-4"]
INSTANCE = "slurm"
_SLUG, _VERSION = controller.app.manifest.slug, controller.app.manifest.version


@dataclass(frozen=True)
class Cloud:
    server: str
    token: str
    project_id: str
    key: identity.ServiceAccountKey
    """Of the account that controllers use."""

    @classmethod
    async def make(cls, server: str, password: str) -> "Cloud":
        async with Client(server, NoAuth()) as client:
            login = identity.Login(name="admin", password=password)
            token = (await client.call(identity.LOGIN, login)).access_token
        async with Client(server, BearerToken(token)) as admin:
            org = await admin.call(identity.ORG_CREATE, identity.CreateOrg(name="acme", first_admin="admin"))
            body = identity.CreateProject(name="research")
            project = await admin.call(identity.PROJECT_CREATE, body, org_id=org.org_id)
            await _entitle(admin, project.project_id)
            cloud = cls(server, token, project.project_id, await _account(admin, project.project_id))
            allocations = [await cloud._allocation(admin, name) for name in MACHINES]
            await cloud._deploy(admin, *allocations[:2])
        return cloud

    async def _allocation(self, admin: Client, name: str) -> str:
        """An active allocation on a new node, whose agent answers its first task."""
        agent = await _enrol(admin, self.server, name)
        request = capacity.CreateAllocation(node_name=name)
        (created,) = (await admin.call(capacity.ALLOCATION_CREATE, request, project_id=self.project_id)).items
        async with agent:
            task = (await agent.call(node.TASK_NEXT, query={"wait_s": 10})).task
            assert task is not None
            task_id = msgspec.json.decode(task.payload)["task_id"]
            done = node.TaskResult(status="succeeded", result={"observer_user": "observer"})
            await agent.call(node.TASK_RESULT, done, task_id=task_id)
        return created.allocation_id

    async def _deploy(self, admin: Client, controller_id: str, worker_id: str) -> None:
        """Deploy, with a controller that only reports: what it does on machines is no part of the walk."""
        inputs = {
            "cluster_name": "lab",
            "controller_allocation_id": controller_id,
            "worker_allocation_ids": [worker_id],
        }
        wanted = instances.DeployInstance(name=INSTANCE, app_slug=_SLUG, topology="split", inputs=inputs)
        await admin.call(instances.INSTANCE_CREATE, wanted, project_id=self.project_id)
        async with Client(self.server, ServiceAccount(self.key.key_id, self.key.client_secret)) as app:
            request = runtime.ClaimOperation(app_slug=_SLUG, holder="seed", claim_id=uuid.uuid4().hex, lease_s=60)
            claim = await app.call(runtime.CLAIM, request, project_id=self.project_id)
            assert claim.operation is not None
            operation_id = claim.operation.operation_id
            for member in claim.members:
                for status in ("provisioning", "joining", "ready"):
                    report = msgspec.convert({"epoch": claim.epoch, "status": status}, runtime.ReportMember)
                    await app.call(
                        runtime.MEMBER_REPORT,
                        report,
                        project_id=self.project_id,
                        operation_id=operation_id,
                        member_id=member.member_id,
                    )
            complete = runtime.CompleteOperation(epoch=claim.epoch)
            await app.call(runtime.COMPLETE, complete, project_id=self.project_id, operation_id=operation_id)


async def _entitle(admin: Client, project_id: str) -> None:
    source = Path(controller.__file__).with_name("manifest.yaml")
    manifest = msgspec.convert(yaml.safe_load(source.read_text()), catalog.Manifest)
    await admin.call(catalog.VERSION_REGISTER, manifest)
    await admin.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug=_SLUG, version=_VERSION)
    entitlement = catalog.SetEntitlement(enabled=True)
    await admin.call(catalog.ENTITLEMENT_SET, entitlement, if_match="*", app_slug=_SLUG, project_id=project_id)


async def _account(admin: Client, project_id: str) -> identity.ServiceAccountKey:
    body = identity.CreateServiceAccount(name="controller", apps=[_SLUG])
    account = await admin.call(identity.SERVICE_ACCOUNT_CREATE, body, project_id=project_id)
    account_id = account.service_account_id
    return await admin.call(identity.SERVICE_ACCOUNT_KEY_CREATE, project_id=project_id, service_account_id=account_id)


async def _enrol(admin: Client, server: str, name: str) -> Client:
    """Enrol a node as its agent does, and return a client with the node's token."""
    token = await admin.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=name))
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    address = f"127.0.0.{name.removeprefix('gpu-')}"
    body = node.Enrol(
        token=token.token,
        name=name,
        public_key_pem=public.decode(),
        ssh_host_public_key="ssh-ed25519 AAAA",
        facts=capacity.Facts(hostname=name, cpus=4, memory_mb=1000, addresses=[address]),
    )
    async with Client(server, NoAuth()) as client:
        node_id = (await client.call(node.ENROL, body)).node_id
        moment, nonce = int(time.time()), uuid.uuid4().hex
        proof = key.sign(f"gpuaas-node-token\n{node_id}\n{moment}\n{nonce}".encode())
        signature = base64.b64encode(proof).decode()
        login = node.NodeLogin(node_id=node_id, timestamp_s=moment, nonce=nonce, signature=signature)
        return Client(server, BearerToken((await client.call(node.NODE_TOKEN, login)).access_token))
