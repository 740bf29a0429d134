"""Keys that took every path of credentials, and the SSH authority's own, leave no trace; a planted leak is found."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import canary
import httpx
import pytest
from canary import Canary
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from gpuaas_contract import access, audit, catalog, credentials, events, instances, runtime, secrets
from gpuaas_contract.endpoint import Endpoint
from gpuaas_platform import server
from gpuaas_platform.access.machines import authority
from gpuaas_platform.kit.settings import Settings
from gpuaas_sdk.sealed import Recipient
from platform_world import openssh_private, ssh_private_key, ssh_public_key
from server_process import APP, Cloud, ServerProcess

HOLDER = Path(__file__).parents[2] / "credential_holder.py"
VALUE = 'canary "\\ü/+ 51e2d84b067f3a9c'
FORM = {
    "type": "object",
    "properties": {
        "allocation": {"type": "string"},
        "host_key": {"type": "string", "x-gpuaas-picker": "access_credential"},
    },
}


@dataclass
class Tour:
    """Do everything that can be done with a key, on a real server, and keep all answers."""

    cloud: Cloud
    process: ServerProcess
    first: str = field(default_factory=ssh_private_key)
    second: str = field(default_factory=ssh_private_key)
    authority: str = ""
    """The key that signs the platform's own certificates."""
    answers: list[str] = field(default_factory=list)
    token: str = ""
    claim: runtime.Claim | None = None

    @property
    def canaries(self) -> list[Canary]:
        keys = (self.first, self.second, self.authority)
        return [*(Canary.of_key(key) for key in keys), Canary.of_text(VALUE, "51e2d84b067f3a9c")]

    @property
    def held(self) -> dict[str, Any]:
        assert self.claim is not None
        assert self.claim.operation is not None
        return {"operation_id": self.claim.operation.operation_id, "epoch": self.claim.epoch}

    async def send(self, endpoint: Endpoint[Any, Any], body: Any = None, **options: Any) -> httpx.Response:
        answer = await self.cloud.send(endpoint, body, **options)
        self.answers.append(answer.text)
        return answer

    async def create(self) -> str:
        body = {"name": "fleet", "private_key": self.first, "username": "ops"}
        for _ in range(2):
            made = await self.send(credentials.CREDENTIAL_CREATE, body)
        assert made.status_code == 201
        return str(made.json()["credential_id"])

    async def fail(self, credential_id: str) -> None:
        """Cause every refusal of a request that contains a key."""
        good = {"name": "fleet", "private_key": self.second}
        for body in (
            good,
            {**good, "name": self.second},
            {**good, "name": "ok", "username": self.second[:40]},
            {**good, "name": "ok", "private_key": [self.second]},
            {**good, "name": "ok", "private_key": self.second * 60},
            {**good, "name": "ok", "private_key": self.second[:200]},
            {**good, "name": "ok", self.second: "a field of that name"},
        ):
            assert (await self.send(credentials.CREDENTIAL_CREATE, body)).is_error, body
        path = credentials.CREDENTIAL_CREATE.path.format(project_id=self.cloud.project_id)
        headers = {"Authorization": f"Bearer {self.cloud.token}"}
        for content, kind in ((json.dumps(good)[:-1], "application/json"), (self.second, "text/plain")):
            answer = await self.cloud.http.post(path, content=content, headers={**headers, "Content-Type": kind})
            assert answer.is_error
            self.answers.append(answer.text)
        query = {"private_key": self.second}
        assert (await self.send(credentials.CREDENTIAL_LIST, query=query)).is_error
        assert (await self.send(credentials.CREDENTIAL_ROTATE, good, credential_id="cred_none")).is_error
        assert (await self.send(credentials.CREDENTIAL_GET, credential_id=credential_id)).status_code == 200

    async def deploy(self, credential_id: str) -> None:
        inputs = {"allocation": await self.cloud.allocation(), "host_key": credential_id}
        body = instances.DeployInstance(name="one", app_slug="toy", topology="solo", inputs=inputs)
        assert (await self.send(instances.INSTANCE_CREATE, body)).status_code == 202
        self.token = await self.cloud.service_account("controller", "toy")
        asked = runtime.ClaimOperation(app_slug="toy", holder="test", claim_id="one", lease_s=60)
        self.claim = await self.cloud.call(runtime.CLAIM, asked, token=self.token)

    @contextlib.contextmanager
    def used(self, credential_id: str) -> Iterator[None]:
        """A controller in a process of its own has opened the key, logged in with it, and still holds it."""
        asked = {
            "url": self.process.url,
            "token": self.token,
            "project_id": self.cloud.project_id,
            "credential_id": credential_id,
            **self.held,
        }
        with subprocess.Popen([sys.executable, HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdin is not None
            assert holder.stdout is not None
            holder.stdin.write(json.dumps(asked).encode() + b"\n")
            holder.stdin.flush()
            assert holder.stdout.readline() == b"used\n"
            yield

    async def enter(self, settings: Settings) -> None:
        """A certificate signed by the authority, whose key a process beside the server finds in custody."""
        assert self.claim is not None
        body = {**self.held, "public_key": ssh_public_key(Ed25519PrivateKey.generate())}
        where = {"token": self.token, "allocation_id": self.claim.members[0].allocation_id}
        assert (await self.send(access.MACHINE_ACCESS, body, **where)).status_code == 201
        async with server.open_site(settings) as site:
            self.authority = openssh_private(await authority.signing_key(site))

    async def deliver(self, credential_id: str) -> None:
        body = {
            "epoch": self.held["epoch"],
            "credential_id": credential_id,
            "recipient_key": Recipient().public_key,
        }
        where = {"token": self.token, "operation_id": self.held["operation_id"]}
        made = await self.send(credentials.CREDENTIAL_DELIVER, body, **where)
        for status in (200, 409):
            answer = await self.send(
                credentials.CREDENTIAL_OPEN, self.held, token=self.token, delivery_id=made.json()["delivery_id"]
            )
            assert answer.status_code == status

    async def runtime_secret(self) -> None:
        """Its one opening is the one answer that may hold a value, so it is not noted."""
        body = {"epoch": self.held["epoch"], "purpose": "role_join", "name": "join", "value": VALUE}
        where = {"token": self.token, "operation_id": self.held["operation_id"]}
        issued = await self.send(secrets.SECRET_ISSUE, body, **where)
        assert (await self.send(secrets.SECRET_ISSUE, {**body, "value": VALUE + "!"}, **where)).status_code == 409
        answer = await self.cloud.send(
            secrets.DELIVERY_OPEN, self.held, token=self.token, delivery_id=issued.json()["delivery_id"]
        )
        assert answer.json()["value"] == VALUE

    async def events_audit_and_metrics(self) -> list[str]:
        headers = {"Authorization": f"Bearer {self.cloud.token}"}
        texts = []
        for path in (
            f"{events.EVENT_LIST.path}?limit=500",
            f"{audit.PLATFORM_AUDIT_LIST.path}?page_size=500",
            f"{audit.AUDIT_LIST.path}?page_size=500",
            "/metrics",
        ):
            answer = await self.cloud.http.get(path.format(project_id=self.cloud.project_id), headers=headers)
            assert answer.status_code == 200, answer.text
            texts.append(answer.text)
        return texts


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the server and what it starts put files for a moment."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
async def tour(tmp_path: Path, database_url: str, temporary: Path) -> AsyncIterator[Tour]:
    process = ServerProcess(tmp_path / "data", database_url, options=["--log-level", "debug"])
    password = await asyncio.to_thread(process.admin_password)
    await asyncio.to_thread(process.start)
    try:
        async with httpx.AsyncClient(base_url=process.url, timeout=60) as client:
            cloud = Cloud(client)
            await cloud.sign_in(password)
            await cloud.make_project()
            version = {**APP, "version": "2.0.0", "deploy_form": FORM, "secret_purposes": ["role_join"]}
            await cloud.call(catalog.VERSION_REGISTER, version)
            await cloud.call(catalog.VERSION_PUBLISH, {}, app_slug="toy", version="2.0.0")
            await cloud.call(catalog.ENTITLEMENT_SET, {"enabled": True}, app_slug="toy")
            yield Tour(cloud, process)
    finally:
        await asyncio.to_thread(process.kill)


def _folders(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> list[Path]:
    """The data folder, the server's log and temporary files, and what PostgreSQL keeps and logs."""
    folders = [tmp_path]
    if database_url:
        folder: Path = request.getfixturevalue("postgres_folder")
        folders += [folder / "data", folder / "log"]
    return folders


async def test_a_key_leaves_no_trace_on_any_path(
    request: pytest.FixtureRequest, tour: Tour, tmp_path: Path, database_url: str
) -> None:
    folders = _folders(request, tmp_path, database_url)
    credential_id = await tour.create()
    await tour.fail(credential_id)
    await tour.deploy(credential_id)
    await tour.enter(Settings(data_dir=tmp_path / "data", database_url=database_url))
    await tour.deliver(credential_id)
    rotated = await tour.send(credentials.CREDENTIAL_ROTATE, {"private_key": tour.second}, credential_id=credential_id)
    assert rotated.json()["version"] == 2
    await tour.runtime_secret()
    with tour.used(credential_id):
        assert [*canary.in_processes(tour.canaries), *canary.in_files(tour.canaries, folders)] == []
    reason = {"reason": "no longer needed"}
    assert (await tour.send(credentials.CREDENTIAL_REVOKE, reason, credential_id=credential_id)).status_code == 200
    for text in [*tour.answers, *await tour.events_audit_and_metrics()]:
        assert not any(key.is_in(text.encode()) for key in tour.canaries), text[:300]
    assert [*canary.in_processes(tour.canaries), *canary.in_files(tour.canaries, folders)] == []
    marked = Canary.of_text(credential_id)
    assert list(canary.in_files([marked], folders)), "looked in the wrong place"
    assert any(marked.is_in(text.encode()) for text in await tour.events_audit_and_metrics())


def test_a_key_planted_in_a_file_is_found_in_every_form(tmp_path: Path) -> None:
    looked_for = Canary.of_key(ssh_private_key())
    assert list(canary.in_files([looked_for], [tmp_path])) == []
    planted = tmp_path / "deep" / "planted"
    planted.parent.mkdir()
    for form in looked_for.forms:
        planted.write_bytes(b"before " + form + b" after")
        assert list(canary.in_files([looked_for], [tmp_path])) == [f"file {planted}"]


@pytest.mark.parametrize("part", ["cmdline", "environ"])
def test_a_line_of_a_key_planted_in_a_process_is_found(part: str) -> None:
    key = ssh_private_key()
    line = key.splitlines()[4]
    command = [sys.executable, "-c", "print(flush=True); input()", *([line] if part == "cmdline" else [])]
    environment = {**os.environ, **({"LEAKED": line} if part == "environ" else {})}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        assert process.stdout is not None
        process.stdout.readline()  # before it runs, the kernel may show no arguments of it yet
        assert f"{part} of process {process.pid}" in list(canary.in_processes([Canary.of_key(key)]))
