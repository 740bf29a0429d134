"""A backup is restored on an empty data folder while machines run: what was issued before it ends on the machines too.

The other tests of this cloud continue on the restored platform."""

import asyncio
import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpuaas_contract import access, catalog, errors, identity, instances, operations, runtime
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client
from local_cloud import BIN, LAB, NODES, PORT, LocalCloud, Project

pytestmark = pytest.mark.machines

MACHINES = ("gpu-2", "gpu-3")
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
MANIFEST = msgspec.json.decode((HOW_TO / "tiny_app.json").read_bytes(), type=catalog.Manifest)
FENCE = 1_000_000
"""By how much a restore raises the epochs of open operations."""


@dataclass(frozen=True)
class Certificate:
    """A key and its certificate, in files, for OpenSSH's own client."""

    folder: Path
    granted: access.MachineAccess

    def command(self, *words: str) -> list[str]:
        files = {"IdentityFile": "id", "CertificateFile": "id-cert.pub", "UserKnownHostsFile": "known"}
        options = [f"{name}={self.folder / file}" for name, file in files.items()]
        options += ["IdentitiesOnly=yes", "IdentityAgent=none", "StrictHostKeyChecking=yes", "BatchMode=yes"]
        arguments = [word for option in options for word in ("-o", option)]
        return ["ssh", "-F", "none", *arguments, f"{self.granted.user}@{self.granted.host}", *words]

    def opens(self) -> bool:
        return subprocess.run(self.command("true"), capture_output=True, check=False).returncode == 0

    @contextlib.contextmanager
    def session(self) -> Iterator[subprocess.Popen[str]]:
        """A session that is open and would stay so."""
        command = self.command("echo", "here", "&&", "sleep", "4711")
        with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True) as session:
            try:
                assert session.stdout is not None
                assert session.stdout.readline() == "here\n"
                yield session
            finally:
                session.kill()


def new_key(folder: Path) -> str:
    """Make a key in a new folder; return its public part."""
    folder.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / "id")], check=True)
    return (folder / "id.pub").read_text().strip()


class Controller:
    """A controller of the app that has claimed its deploy. It does not notice the restore."""

    def __init__(self, client: Client, project_id: str, claim: runtime.Claim) -> None:
        assert claim.operation is not None
        self._client, self._project_id, self.claim = client, project_id, claim
        self.operation: operations.Operation = claim.operation

    async def certificate(self, folder: Path) -> Certificate:
        """Get a certificate for the first machine of its operation."""
        body = access.RequestMachineAccess(
            public_key=new_key(folder), operation_id=self.operation.operation_id, epoch=self.claim.epoch
        )
        where: dict[str, Any] = {"project_id": self._project_id, "allocation_id": self.claim.members[0].allocation_id}
        granted = await self._client.call(access.MACHINE_ACCESS, body, **where)
        (folder / "id-cert.pub").write_text(granted.certificate)
        (folder / "known").write_text(f"{granted.host} {granted.host_public_key}\n")
        return Certificate(folder, granted)

    async def heartbeat(self, client: Client) -> operations.Receipt:
        body = runtime.Heartbeat(epoch=self.claim.epoch, lease_s=runtime.LEASE_S_MAX)
        where: dict[str, Any] = {"project_id": self._project_id, "operation_id": self.operation.operation_id}
        return await client.call(runtime.HEARTBEAT, body, **where)


@dataclass
class Site:
    cloud: LocalCloud
    folder: Path

    @contextlib.asynccontextmanager
    async def admin(self) -> AsyncIterator[tuple[Client, str]]:
        """The admin as `gpuaas up` signed it in last, and the project."""
        context = json.loads((self.cloud.home / "config.json").read_text())["contexts"][LAB]
        async with Client(f"http://127.0.0.1:{PORT}", BearerToken(context["token"])) as client:
            yield client, context["project_id"]

    async def deploy(self) -> tuple[instances.Deployed, identity.ServiceAccountLogin]:
        """Request an instance of the app; return the key of a service account that operates it."""
        async with self.admin() as (admin, project_id):
            where: dict[str, Any] = {"project_id": project_id}
            await admin.call(catalog.VERSION_REGISTER, MANIFEST)
            version: dict[str, Any] = {"app_slug": MANIFEST.slug, "version": MANIFEST.version}
            await admin.call(catalog.VERSION_PUBLISH, catalog.PublishVersion(), **version)
            enabled = catalog.SetEntitlement(enabled=True)
            await admin.call(catalog.ENTITLEMENT_SET, enabled, app_slug=MANIFEST.slug, **where)
            allocations = await Project(admin, project_id).allocations()
            head, hand = (allocations[name].allocation_id for name in MACHINES)
            body = instances.DeployInstance(
                name="restored",
                app_slug=MANIFEST.slug,
                topology="star",
                inputs={"head_allocation": head, "hand_allocations": [hand]},
            )
            deployed = await admin.call(instances.INSTANCE_CREATE, body, **where)
            account = await admin.call(
                identity.SERVICE_ACCOUNT_CREATE,
                identity.CreateServiceAccount(name="restored", apps=[MANIFEST.slug]),
                **where,
            )
            about: dict[str, Any] = {**where, "service_account_id": account.service_account_id}
            made = await admin.call(identity.SERVICE_ACCOUNT_KEY_CREATE, **about)
        key = identity.ServiceAccountLogin(key_id=made.key_id, client_secret=made.client_secret)
        (self.folder / "key.json").write_bytes(msgspec.json.encode(key))
        return deployed, key

    def back_up(self) -> None:
        made = self._platform("backup", "--new-identity", str(self.folder / "identity"))
        where = ["--data", str(self._data), "--to", str(self.folder / "backup")]
        self._platform("backup", *where, "--recipient", made.strip())

    def restore(self) -> None:
        """Lose the server and its data, restore the backup in their place, and start the server from it."""
        self.cloud.kill("server")
        self._data.rename(self._data.with_name("data-lost"))
        where = ["--from", str(self.folder / "backup"), "--identity", str(self.folder / "identity")]
        self._platform("restore", *where, "--data", str(self._data))
        self.cloud.up(NODES)

    @contextlib.contextmanager
    def tiny_controller(self, project_id: str) -> Iterator[None]:
        """The controller of the how-to page, which finishes what it finds."""
        options = ["--url", f"http://127.0.0.1:{PORT}", "--project", project_id]
        command = [sys.executable, str(HOW_TO / "tiny_controller.py"), *options, "--key-file", "key.json"]
        process = subprocess.Popen(command, cwd=self.folder)
        try:
            yield
        finally:
            process.kill()
            process.wait()

    @property
    def _data(self) -> Path:
        return self.cloud.home / LAB / "data"

    @staticmethod
    def _platform(*words: str) -> str:
        done = subprocess.run([BIN / "gpuaas-platform", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.asynccontextmanager
async def signed_in(key: identity.ServiceAccountLogin) -> AsyncIterator[Client]:
    """A client with one session, which does not sign in again by itself."""
    url = f"http://127.0.0.1:{PORT}"
    async with Client(url, NoAuth()) as client:
        token = (await client.call(identity.SERVICE_ACCOUNT_TOKEN, key)).access_token
    async with Client(url, BearerToken(token)) as client:
        yield client


async def claim(client: Client, project_id: str) -> runtime.Claim:
    body = runtime.ClaimOperation(
        app_slug=MANIFEST.slug, holder="old", claim_id=uuid.uuid4().hex, lease_s=runtime.LEASE_S_MAX
    )
    return await client.call(runtime.CLAIM, body, project_id=project_id)


async def test_certificates_and_controllers_from_before_a_restore_are_refused_by_machines_and_platform(
    cloud: LocalCloud, tmp_path: Path
) -> None:
    site = Site(cloud, tmp_path)
    deployed, key = await site.deploy()
    project_id = deployed.instance.project_id
    async with signed_in(key) as session:
        controller = Controller(session, project_id, await claim(session, project_id))
        before = await controller.certificate(tmp_path / "before")
        await controller.heartbeat(session)
        await asyncio.to_thread(site.back_up)
        await controller.heartbeat(session)
        # The restored platform does not have the serial of this one.
        after = await controller.certificate(tmp_path / "after")
        assert (before.opens(), after.opens()) == (True, True)
        await controller.heartbeat(session)
        with after.session() as shell:
            await asyncio.to_thread(site.restore)
            assert await asyncio.to_thread(shell.wait, 60) == 255
        assert (before.opens(), after.opens()) == (False, False)
        with pytest.raises(errors.TokenInvalid):
            await controller.heartbeat(session)
    async with signed_in(key) as session:
        with pytest.raises(errors.LeaseLost):
            await controller.heartbeat(session)
    await check_that_work_continues(site, deployed)


async def check_that_work_continues(site: Site, deployed: instances.Deployed) -> None:
    """A new certificate opens a machine, and a controller that claims again finishes the operation."""
    assert site.cloud.gpuaas("ssh", MACHINES[0], "--", "echo", "here").stdout == "here\n"
    async with site.admin() as (admin, project_id):
        project, instance_id = Project(admin, project_id), deployed.instance.instance_id
        with site.tiny_controller(project_id):
            ended = await project.ended(deployed.operation.operation_id, 120)
            assert (ended.status, ended.epoch > FENCE) == ("succeeded", True)
            body = instances.Decommission(reason="the test ends")
            asked = await admin.call(instances.DECOMMISSION, body, project_id=project_id, instance_id=instance_id)
            assert (await project.ended(asked.operation_id, 120)).status == "succeeded"
