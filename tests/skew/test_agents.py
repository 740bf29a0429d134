"""An agent of the release before this one works with a server of this release, until a signed release replaces it."""

import asyncio
import base64
import contextlib
import datetime
import hashlib
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import starter
from gpuaas_agent import ed25519, signer
from gpuaas_agent import releases as agent_releases
from gpuaas_contract import agents, capacity
from releases import THIS, Release
from server_process import Cloud, ServerProcess

NODE, NEW_VERSION = "gpu-1", "9.9.9"
DEADLINE_S = 120


def archive(release: Release, path: Path, version: str = "") -> bytes:
    """Build the agent of a release as one file that stays off this host, with another version if one is given."""
    built = path.with_suffix(".built")
    subprocess.run(release.python("-m", "gpuaas_agent.build", str(built)), stdout=subprocess.DEVNULL, check=True)
    changed = {"__main__.py": Path(starter.__file__).read_text().replace("@FOLDER@", str(path.parent)).encode()}
    with zipfile.ZipFile(built) as source, zipfile.ZipFile(path, "w") as target:
        if version:
            name = "gpuaas_agent/__init__.py"
            changed[name] = re.sub(rb'AGENT_VERSION = ".*"', f'AGENT_VERSION = "{version}"'.encode(), source.read(name))
        for name in source.namelist():
            target.writestr(name, changed.get(name) or source.read(name))
    return path.read_bytes()


@dataclass
class Node:
    """A node with an agent of the release before this one, which enrolled with a server of that release."""

    server: ServerProcess
    cloud: Cloud
    folder: Path
    key: Path

    @contextlib.contextmanager
    def agent(self, content: bytes, token: str) -> Iterator[subprocess.Popen[bytes]]:
        pinned = Path(f"{self.key}.pub").read_text()
        settings = {"server": self.server.url, "token": token, "name": NODE, "release_keys": [pinned]}
        (self.folder / "agent.json").write_text(json.dumps(settings))
        (self.folder / "agent.json").chmod(0o600)
        (self.folder / "agent.pyz").write_bytes(content)
        files = ["--config", str(self.folder / "agent.json"), "--state", str(self.folder / "state")]
        with (self.folder / "agent.log").open("wb") as log:
            process = subprocess.Popen([sys.executable, str(self.folder / "agent.pyz"), *files], stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    async def shown(self) -> capacity.Node:
        return (await self.cloud.call(capacity.NODE_LIST, query={"name": NODE})).items[0]

    async def until_seen_after(self, moment: datetime.datetime | None) -> capacity.Node:
        """Wait for a heartbeat after this moment."""
        while True:
            shown = (await self.cloud.call(capacity.NODE_LIST, query={"name": NODE})).items
            if shown and shown[0].last_seen_at != moment:
                return shown[0]
            await asyncio.sleep(0.1)

    async def claimed(self) -> capacity.Allocation:
        made = await self.cloud.call(capacity.ALLOCATION_CREATE, capacity.CreateAllocation(node_name=NODE))
        return await self.until(made.items[0], "active")

    async def release(self, allocation: capacity.Allocation) -> None:
        await self.cloud.call(capacity.ALLOCATION_RELEASE, allocation_id=allocation.allocation_id)
        await self.until(allocation, "released")

    async def until(self, allocation: capacity.Allocation, status: str) -> capacity.Allocation:
        while allocation.status != status:
            where = {"allocation_id": allocation.allocation_id}
            allocation = await self.cloud.call(capacity.ALLOCATION_GET, **where)
            await asyncio.sleep(0.05)
        return allocation

    async def upgraded(self, content: bytes) -> agents.NodeTask:
        sha256 = hashlib.sha256(content).hexdigest()
        signature = base64.b64encode(ed25519.sign(self.key, agent_releases.message(NEW_VERSION, sha256))).decode()
        body = agents.RegisterAgentRelease(version=NEW_VERSION, content=content, signature=signature)
        await self.cloud.call(agents.AGENT_RELEASE_REGISTER, body)
        request, where = (
            agents.UpgradeAgent(sha256=sha256, reason="a new release"),
            {"node_id": (await self.shown()).node_id},
        )
        task = await self.cloud.call(agents.NODE_UPGRADE_AGENT, request, **where)
        while task.state == "queued":
            wait = {"wait_s": 30}
            task = await self.cloud.call(agents.NODE_TASK_GET, query=wait, task_id=task.task_id, **where)
        return task

    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().splitlines()


@pytest.fixture
async def node(previous: Release, tmp_path: Path) -> AsyncIterator[Node]:
    signer.create_key(tmp_path / "release.key")
    options = ["--agent-release-key", str(tmp_path / "release.key.pub"), "--agent-release-approvals", "0"]
    server = ServerProcess(tmp_path / "data", options=options, program=previous.platform)
    password = server.admin_password()
    with server:
        async with asyncio.timeout(DEADLINE_S), httpx.AsyncClient(base_url=server.url, timeout=60) as http:
            cloud = Cloud(http)
            await cloud.sign_in(password)
            await cloud.make_project()
            yield Node(server, cloud, tmp_path, tmp_path / "release.key")


async def test_an_old_agent_works_with_a_new_server_and_is_replaced_by_a_signed_release(
    node: Node, previous: Release
) -> None:
    old, new = (
        archive(previous, node.folder / "old.pyz"),
        archive(THIS, node.folder / "new.pyz", NEW_VERSION),
    )
    enrolment = await node.cloud.call(capacity.ENROLMENT_CREATE, capacity.CreateEnrolmentToken(name=NODE))
    with node.agent(old, enrolment.token) as process:
        await node.until_seen_after(None)
        kept = await node.claimed()
        node.server.stop()
        node.server.program = THIS.platform
        node.server.start()
        present = await node.until_seen_after((await node.shown()).last_seen_at)
        assert (present.status, present.agent_sha256) == ("ready", hashlib.sha256(old).hexdigest())
        await node.release(kept)
        task = await node.upgraded(new)
        sha256 = hashlib.sha256(new).hexdigest()
        assert (task.state, task.result) == ("succeeded", {"sha256": sha256, "version": NEW_VERSION})
        await node.release(await node.claimed())
        assert ((await node.shown()).agent_sha256, process.poll()) == (sha256, None)
    kinds = ("allocation.provision", "allocation.release")
    assert [line for line in node.ran() if line.startswith(kinds)] == [
        f"allocation.provision {present.agent_version}",
        f"allocation.release {present.agent_version}",
        f"allocation.provision {NEW_VERSION}",
        f"allocation.release {NEW_VERSION}",
    ]
