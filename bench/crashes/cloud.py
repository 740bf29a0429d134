"""The real platform as a process that can be killed, with the app in its catalog and the machines of all clusters."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import artifacts, capacity, catalog, identity, trust_keys
from gpuaas_contract.catalog import Manifest
from gpuaas_sdk import signatures
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client
from gpuaas_sdk.conformance import Subject, controllers, plan
from gpuaas_sdk.conformance.controllers import Controller

from bench.badday.parts import ServerProcess
from bench.crashes.agents import Agent
from bench.crashes.clusters import Cluster

OPTIONS = ("--rate-limit-per-s", "0", "--heartbeat-interval-s", "25")
"""One caller sends all requests. Agents wait for tasks with a heartbeat, which needs no short interval."""
ALLOCATED_S = 60.0
LOOK_S = 0.5


class Cloud:
    """A project on the platform in which the app may be deployed, and the app's controller."""

    def __init__(self, server: ServerProcess, subject: Subject, folder: Path) -> None:
        self.server, self.subject = server, subject
        self.client = Client(server.url, NoAuth())
        self.project_id = ""
        self._folder = folder
        self.key = ("", "")
        """Of the service account of the controller."""
        self.token = ""
        """Of the person who requests the operations."""
        self._starts = 0
        self._controller: Controller | None = None
        self._is_killing = False
        self._agents: list[asyncio.Task[None]] = []

    async def set_up(self, clusters: Sequence[Cluster]) -> None:
        login = identity.Login(name="admin", password=self.server.admin_password())
        self.token = (await self.client.call(identity.LOGIN, login)).access_token
        await self.client.aclose()
        self.client = Client(self.server.url, BearerToken(self.token))
        org = await self.client.call(identity.ORG_CREATE, identity.CreateOrg(name="bench", first_admin="admin"))
        body = identity.CreateProject(name="crashes")
        self.project_id = (await self.client.call(identity.PROJECT_CREATE, body, org_id=org.org_id)).project_id
        await _register(self.client, self.subject, self.project_id)
        await self._make_account()
        for cluster in clusters:
            await self._admit(cluster)

    async def kill(self, victim: str) -> None:
        """Kill the controller or the platform with SIGKILL and start it again."""
        if victim == "platform":
            self.server.kill()
            await asyncio.to_thread(self.server.start)
            return
        self._is_killing = True
        await self.stop_controller()
        await self.start_controller()
        self._is_killing = False

    async def start_controller(self) -> None:
        self._starts += 1
        name = f"{self.subject.manifest.slug}@{self._starts}"
        self._controller = await controllers.start(
            self.subject, name, server=self.server.url, project=self.project_id, key=self.key, at=self._folder
        )

    async def stop_controller(self) -> None:
        if self._controller is not None:
            await self._controller.kill()

    async def watch_controller(self) -> None:
        """Raise when the controller has ended by itself. Then no operation would ever end."""
        while self._controller is None or self._controller.is_running or self._is_killing:  # noqa: ASYNC110 - a process has no event here
            await asyncio.sleep(LOOK_S)
        raise SystemExit(f"bench: the controller ended by itself: {self._controller.last_lines()}")

    async def close(self) -> None:
        await self.stop_controller()
        for agent in self._agents:
            agent.cancel()
        ended = await asyncio.gather(*self._agents, return_exceptions=True)
        await self.client.aclose()
        if failed := [error for error in ended if isinstance(error, Exception)]:
            raise failed[0]  # an agent that died does no tasks: every other result is worth nothing

    async def _make_account(self) -> None:
        where: dict[str, Any] = {"project_id": self.project_id}
        body = identity.CreateServiceAccount(name="controller", apps=[self.subject.manifest.slug])
        account = await self.client.call(identity.SERVICE_ACCOUNT_CREATE, body, **where)
        where["service_account_id"] = account.service_account_id
        key = await self.client.call(identity.SERVICE_ACCOUNT_KEY_CREATE, **where)
        self.key = (key.key_id, key.client_secret)

    async def _admit(self, cluster: Cluster) -> None:
        """Enrol the machines of a cluster and give them to the project."""
        await cluster.open()
        for machine in cluster.machines:
            address = cluster.address(machine.name)
            facts = capacity.Facts(hostname=machine.name, cpus=4, memory_mb=8000, addresses=[address])
            agent = Agent(self.server.url, machine, facts)
            await agent.enrol(self.client, cluster.host_key)
            self._agents.append(asyncio.create_task(agent.run()))
            request = capacity.CreateAllocation(node_name=machine.name)
            made = await self.client.call(capacity.ALLOCATION_CREATE, request, project_id=self.project_id)
            cluster.allocation_ids[machine.name] = made.items[0].allocation_id
        async with asyncio.timeout(ALLOCATED_S):
            await asyncio.gather(*map(self._until_active, cluster.allocation_ids.values()))

    async def _until_active(self, allocation_id: str) -> None:
        where: dict[str, Any] = {"project_id": self.project_id, "allocation_id": allocation_id}
        while (await self.client.call(capacity.ALLOCATION_GET, **where)).status != "active":  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def opened(subject: Subject, clusters: Sequence[Cluster], folder: Path) -> AsyncIterator[Cloud]:
    """Start the platform and the controller, and admit the machines of the clusters."""
    with ServerProcess(folder / "data", options=OPTIONS) as server:
        cloud = Cloud(server, subject, folder)
        try:
            await cloud.set_up(clusters)
            await cloud.start_controller()
            yield cloud
        finally:
            await cloud.close()
            await asyncio.gather(*(cluster.close() for cluster in clusters))


async def _register(client: Client, subject: Subject, project_id: str) -> None:
    """Publish the version that a deploy uses and the one that an upgrade goes to, and entitle the project."""
    manifest = subject.manifest
    await _publish_artifacts(client, manifest, subject.driver.artifacts)
    for version in dict.fromkeys((plan.previous_version(manifest), manifest.version)):
        await client.call(catalog.VERSION_REGISTER, msgspec.structs.replace(manifest, version=version))
        where: dict[str, Any] = {"app_slug": manifest.slug, "version": version}
        await client.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), **where)
    entitlement = catalog.SetEntitlement(enabled=True)
    where = {"app_slug": manifest.slug, "project_id": project_id}
    await client.call(catalog.ENTITLEMENT_SET, entitlement, if_match="*", **where)


async def _publish_artifacts(client: Client, manifest: Manifest, contents: Mapping[str, bytes]) -> None:
    key = Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    trusted = trust_keys.PutTrustKey(public_key_pem=key.public_key().public_bytes(encoding, form).decode())
    await client.call(trust_keys.SHARED_TRUST_KEY_PUT, trusted, trust_key_id="bench")
    for name in manifest.artifacts:
        content = contents[name]
        sha256 = hashlib.sha256(content).hexdigest()
        intent = artifacts.PublishArtifact(
            name=name,
            digest=f"sha256:{sha256}",
            size_bytes=len(content),
            media_type="application/octet-stream",
            source=artifacts.LocalSource(),
            signature=msgspec.convert(json.loads(signatures.envelope(name, sha256, key)), artifacts.Envelope),
        )
        artifact_id = (await client.call(artifacts.SHARED_PUBLISH, intent)).artifact_id
        await client.upload(artifacts.SHARED_CONTENT_PUT, _once(content), artifact_id=artifact_id)
        await client.call(artifacts.SHARED_VERIFY, artifacts.VerifyArtifact(), artifact_id=artifact_id)
        stable = artifacts.PromoteArtifact(channel="stable")
        await client.call(artifacts.SHARED_PROMOTE, stable, artifact_id=artifact_id)


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
