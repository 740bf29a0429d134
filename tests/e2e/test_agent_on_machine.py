"""The agent under systemd on a real machine: inspected, and replaced only by a build that reports."""

import hashlib
import io
import json
import zipfile
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gpuaas_agent import build, ed25519, releases
from gpuaas_contract import agents, capacity
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client
from local_cloud import LAB, PORT, LocalCloud

pytestmark = pytest.mark.machines

MACHINE = "gpu-4"
NEXT_VERSION = "9.9.9"


@pytest.fixture
async def admin(cloud: LocalCloud) -> AsyncIterator[Client]:
    context = json.loads((cloud.home / "config.json").read_text())["contexts"][LAB]
    async with Client(f"http://127.0.0.1:{PORT}", BearerToken(context["token"])) as client:
        yield client


def variant(folder: Path, name: str, content: str) -> bytes:
    """The agent with one of its files replaced."""
    archive, made = folder / "agent.pyz", io.BytesIO()
    build.build(archive)
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(made, "w") as target:
        for entry in source.namelist():
            target.writestr(entry, content if entry == name else source.read(entry))
    return made.getvalue()


async def node(admin: Client) -> capacity.Node:
    return (await admin.call(capacity.NODE_LIST, query={"name": MACHINE})).items[0]


async def ended(admin: Client, task: agents.NodeTask) -> agents.NodeTask:
    while task.state == "queued":
        task = await admin.call(agents.NODE_TASK_GET, query={"wait_s": 30}, node_id=task.node_id, task_id=task.task_id)
    return task


async def upgraded(admin: Client, content: bytes, key: Path) -> agents.NodeTask:
    signed = ed25519.sign(key, releases.message(NEXT_VERSION, hashlib.sha256(content).hexdigest()))
    signature = b64encode(signed).decode()
    body = agents.RegisterAgentRelease(version=NEXT_VERSION, content=content, signature=signature)
    release = await admin.call(agents.AGENT_RELEASE_REGISTER, body)
    request = agents.UpgradeAgent(sha256=release.sha256, reason="shown on a real machine")
    target = await node(admin)
    return await ended(admin, await admin.call(agents.NODE_UPGRADE_AGENT, request, node_id=target.node_id))


def release_key(cloud: LocalCloud) -> Path:
    """The key that `gpuaas up` made for this cloud and pinned on its machines."""
    return cloud.home / LAB / "agent-release.key"


def on_machine(cloud: LocalCloud) -> tuple[str, str]:
    """Digest of the agent's file, and its process as systemd reports it."""
    file = cloud.lab("exec", MACHINE, "--", "sha256sum", "/opt/gpuaas/agent.pyz").split()[0]
    shown = cloud.lab("exec", MACHINE, "--", "systemctl", "show", "-p", "MainPID,NRestarts", "gpuaas-agent.service")
    return file, shown


async def test_a_machine_reports_its_health(admin: Client) -> None:
    target = await node(admin)
    asked = await admin.call(agents.NODE_INSPECT, agents.InspectNode(type="host.health"), node_id=target.node_id)
    task = await ended(admin, asked)
    assert task.state == "succeeded", task.error
    assert {check["name"]: check["ok"] for check in task.result["checks"]} == {
        "disk has room": True,
        "memory is left": True,
        "sshd answers": True,
        "GPU devices are there": True,
    }


async def test_a_build_that_does_not_report_leaves_the_old_agent_in_its_place(
    cloud: LocalCloud, admin: Client, tmp_path: Path
) -> None:
    before = on_machine(cloud)
    broken = variant(tmp_path, "gpuaas_agent/report.py", "raise SystemExit('broken build')\n")
    task = await upgraded(admin, broken, release_key(cloud))
    assert task.error is not None
    assert (task.state, task.error.code) == ("failed", "agent_did_not_report")
    assert "broken build" in task.error.message
    assert on_machine(cloud) == before
    assert (await node(admin)).status == "ready"


async def test_a_build_that_reports_takes_over_within_the_same_process(
    cloud: LocalCloud, admin: Client, tmp_path: Path
) -> None:
    _, process = on_machine(cloud)
    wanted = variant(tmp_path, "gpuaas_agent/__init__.py", f'AGENT_VERSION = "{NEXT_VERSION}"\n')
    task = await upgraded(admin, wanted, release_key(cloud))
    sha256 = hashlib.sha256(wanted).hexdigest()
    assert (task.state, task.result) == ("succeeded", {"sha256": sha256, "version": NEXT_VERSION})
    assert on_machine(cloud) == (sha256, process)


async def test_the_former_agent_is_restored_the_same_way(cloud: LocalCloud, admin: Client, tmp_path: Path) -> None:
    """It is also the agent that the machines of this cloud start with: the following tests find it unchanged."""
    _, process = on_machine(cloud)
    sha256 = build.build(tmp_path / "agent.pyz")
    task = await upgraded(admin, (tmp_path / "agent.pyz").read_bytes(), release_key(cloud))
    assert (task.state, task.result["sha256"]) == ("succeeded", sha256)
    assert on_machine(cloud) == (sha256, process)
