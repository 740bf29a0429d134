"""An app of one member that puts a signed tool on its machine and runs it there; its controller lives in the test."""

import asyncio
import contextlib
import datetime
import hashlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from gpuaas_contract import artifacts, catalog, identity, instances, lifecycles, operations, trust_keys
from gpuaas_contract.endpoint import Answer, Endpoint
from gpuaas_sdk.auth import ServiceAccount
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import App, Evidence, Operation, Reconciliation
from gpuaas_sdk.machine import Ran
from securesystemslib import dsse
from securesystemslib.signer import CryptoSigner

SLUG = "placing"
TOOL = b"#!/bin/sh\necho the tool runs on $(hostname)\n"
DIGEST = f"sha256:{hashlib.sha256(TOOL).hexdigest()}"
_TINY = json.loads((Path(__file__).parents[2] / "docs" / "how-to" / "tiny_app.json").read_text())
MANIFEST = {
    **_TINY,
    "slug": SLUG,
    "roles": [role for role in _TINY["roles"] if role["component_key"] == "head"],
    "topologies": {"solo": {"head": "head_allocation"}},
    "deploy_form": {**_TINY["deploy_form"], "required": ["head_allocation"]},
    "artifacts": {"tool": {"digest": DIGEST}},
}
"""The app of the how-to page with one role and one artifact."""


class PlacingApp:
    """Deployed and taken away by an admin who has made it known."""

    def __init__(self, admin: Client, project_id: str, token: str) -> None:
        self.output, self.path = "", ""
        self.attempts: list[str] = []
        """Commands that the observer runs at the next look."""
        self.results: dict[str, Ran] = {}
        """What the observer's commands did, by command."""
        self._admin, self._project_id, self._token = admin, project_id, token

    async def publish_tool(self) -> None:
        key = Ed25519PrivateKey.generate()
        pem = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        await self._call(trust_keys.TRUST_KEY_PUT, trust_keys.PutTrustKey(public_key_pem=pem), trust_key_id="placing")
        artifact_id = (await self._call(artifacts.PUBLISH, _intent(key))).artifact_id
        await self._upload(artifact_id)
        await self._call(artifacts.VERIFY, artifacts.VerifyArtifact(), artifact_id=artifact_id)
        await self._call(artifacts.PROMOTE, artifacts.PromoteArtifact(channel="stable"), artifact_id=artifact_id)

    async def deploy(self, allocation_id: str) -> tuple[str, operations.Operation]:
        """The instance's id, and how the deploy ended."""
        await self._call(catalog.ENTITLEMENT_SET, catalog.SetEntitlement(enabled=True), app_slug=SLUG)
        inputs = {"head_allocation": allocation_id}
        body = instances.DeployInstance(name=SLUG, app_slug=SLUG, topology="solo", inputs=inputs)
        made = await self._call(instances.INSTANCE_CREATE, body)
        return made.instance.instance_id, await self._ended(made.operation)

    async def decommission(self, instance_id: str) -> operations.Operation:
        body = instances.Decommission(reason="the test ends")
        return await self._ended(await self._call(instances.DECOMMISSION, body, instance_id=instance_id))

    async def observe(self, *lines: str) -> dict[str, Ran]:
        """Run commands on the machine as the observer, between operations. Return what each did."""
        self.results, self.attempts = {}, list(lines)
        async with asyncio.timeout(120):
            while len(self.results) < len(lines):  # noqa: ASYNC110 - a fact of another task
                await asyncio.sleep(0.1)
        return self.results

    @contextlib.asynccontextmanager
    async def controller(self, folder: Path) -> AsyncIterator[None]:
        """At work with a service account of its own, after the app was published: the account gets what it needs."""
        await self._admin.call(catalog.VERSION_REGISTER, msgspec.convert(MANIFEST, catalog.Manifest))
        await self._admin.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), app_slug=SLUG, version="1.0.0")
        body = identity.CreateServiceAccount(name=SLUG, apps=[SLUG])
        account = await self._call(identity.SERVICE_ACCOUNT_CREATE, body)
        about = {"service_account_id": account.service_account_id}
        key = await self._call(identity.SERVICE_ACCOUNT_KEY_CREATE, **about)
        async with Client(self._admin.server, ServiceAccount(key.key_id, key.client_secret)) as client:
            runner = self._app(folder).runner(client, self._project_id, f"{SLUG}@test")
            working = asyncio.ensure_future(runner.run())
            try:
                yield
            finally:
                working.cancel()
                await asyncio.wait({working})

    def _app(self, folder: Path) -> App:
        manifest = folder / "manifest.yaml"
        manifest.write_bytes(msgspec.json.encode(MANIFEST))
        app = App(SLUG, manifest=manifest)

        async def install(op: Operation) -> None:
            (member,) = op.targets
            self.path = await op.place("tool", member, mode="0755")
            self.output = (await (await op.machine(member)).run(self.path)).stdout

        @app.operation("deploy")
        async def deploy(op: Operation) -> None:
            (member,) = op.targets
            await op.report(member, status="provisioning")
            await op.step("install", install, op, member=member)
            await op.report(member, status="joining")
            await op.report(member, status="ready")

        @app.health(every_s=0.2)
        async def look(now: Reconciliation) -> None:
            attempts, self.attempts = self.attempts, []
            if attempts:
                machine = await now.machine(now.members[0])
                for line in attempts:
                    self.results[line] = await machine.run("bash", "-c", line, check=False, timeout_s=20)

        @app.operation("decommission")
        async def decommission(op: Operation) -> None:
            (member,) = op.targets
            seen = Evidence(state="idle", source=SLUG, observed_at=datetime.datetime.now(datetime.UTC))
            await op.report(member, status="removing", evidence=seen)
            await op.report(member, status="removed")

        return app

    async def _upload(self, artifact_id: str) -> None:
        path = artifacts.CONTENT_PUT.path.format(project_id=self._project_id, artifact_id=artifact_id)
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx.AsyncClient(base_url=self._admin.server, headers=headers) as http:
            answer = await http.put(path, content=TOOL)
        assert answer.status_code == 200, answer.text

    async def _call(self, endpoint: Endpoint[Any, Answer], body: Any = None, **path: str) -> Answer:
        params: dict[str, Any] = {"project_id": self._project_id, **path}
        return await self._admin.call(endpoint, body, **params)

    async def _ended(self, asked: operations.Operation) -> operations.Operation:
        async with asyncio.timeout(120):
            async for seen in self._admin.watch_operation(self._project_id, asked.operation_id):
                if seen.status in lifecycles.ENDED_OPERATION:
                    return seen
        raise AssertionError("an operation ends")


def _intent(key: Ed25519PrivateKey) -> artifacts.PublishArtifact:
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "tool", "digest": {"sha256": DIGEST.removeprefix("sha256:")}}],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {},
    }
    signed = dsse.Envelope(msgspec.json.encode(statement), "application/vnd.in-toto+json", {})
    signed.sign(CryptoSigner(key))
    return artifacts.PublishArtifact(
        name="tool",
        digest=DIGEST,
        size_bytes=len(TOOL),
        media_type="application/x-sh",
        source=artifacts.LocalSource(),
        signature=msgspec.convert(signed.to_dict(), artifacts.Envelope),
    )
