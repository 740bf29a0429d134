"""Attack: run an archive as root on a tenant's node by sending it there as a release of the agent. First an operator
tries it, who may register releases but may not enter machines. Then an attacker who has taken over the whole platform.

The server and the agent are real processes. The platform of the second attacker signs its tasks with the key that the
agent trusts for tasks. The archive leaves a file if anything of it runs.
"""

import base64
import contextlib
import hashlib
import json
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from gpuaas_agent import build, ed25519, releases, signer
from gpuaas_agent.testing import platform as fake_platform
from gpuaas_contract import agents, bindings, errors, identity, users
from gpuaas_sdk.auth import BearerToken, NoAuth
from gpuaas_sdk.client import Client
from gpuaas_sdk.testing import free_port

PLATFORM = str(Path(sys.executable).with_name("gpuaas-platform"))
PASSWORD = "correct horse battery staple"
VERSION = "6.6.6"
LEAVE_A_FILE = "import pathlib\n\npathlib.Path({path!r}).touch()\n"


@dataclass(frozen=True)
class Archive:
    """An archive that leaves a file if anything of it runs."""

    content: bytes
    trace: Path

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def signed_by(self, key: Path) -> str:
        return base64.b64encode(ed25519.sign(key, releases.message(VERSION, self.sha256))).decode()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    path, trace = tmp_path / "attack.pyz", tmp_path / "it-ran"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("__main__.py", LEAVE_A_FILE.format(path=str(trace)))
    return Archive(path.read_bytes(), trace)


@pytest.fixture
def offline_key(tmp_path: Path) -> Path:
    """The key of the provider's releases. No attacker has it."""
    signer.create_key(tmp_path / "offline.key")
    return tmp_path / "offline.key"


@pytest.fixture
def own_key(tmp_path: Path) -> Path:
    """A key of the attacker."""
    signer.create_key(tmp_path / "own.key")
    return tmp_path / "own.key"


@pytest.fixture
def server(tmp_path: Path, offline_key: Path) -> Iterator[tuple[str, str]]:
    """The URL of a server, and the password of its admin."""
    url, data = f"http://127.0.0.1:{free_port()}", ["--data", str(tmp_path / "data")]
    admin = subprocess.run([PLATFORM, "admin", *data], capture_output=True, text=True, check=True)
    listen = ["--listen", url.removeprefix("http://"), "--agent-release-key", f"{offline_key}.pub"]
    with (tmp_path / "server.log").open("w") as log:
        process = subprocess.Popen([PLATFORM, "server", *data, *listen], stdout=log, stderr=log)
    try:
        fake_platform.poll(lambda: _is_ready(url))
        yield url, admin.stdout.strip()
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
async def operator(server: tuple[str, str]) -> AsyncIterator[Client]:
    """An operator of the platform, whom its admin appointed."""
    url, password = server
    async with Client(url, BearerToken(await _token(url, "admin", password))) as admin:
        made = await admin.call(users.USER_CREATE, users.CreateUser(name="mallory", password=PASSWORD))
        role = bindings.BindRole(user_id=made.user_id, role="platform_ops")
        await admin.call(bindings.PLATFORM_BINDING_CREATE, role)
    async with Client(url, BearerToken(await _token(url, "mallory", PASSWORD))) as client:
        yield client


async def _token(url: str, name: str, password: str) -> str:
    async with Client(url, NoAuth()) as client:
        return (await client.call(identity.LOGIN, identity.Login(name=name, password=password))).access_token


def _is_ready(url: str) -> bool:
    with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz", timeout=2) as answer:
        return bool(answer.status == 200)
    return False


async def test_an_operator_cannot_register_what_the_offline_key_did_not_sign(
    operator: Client, archive: Archive, own_key: Path, offline_key: Path
) -> None:
    of_other_bytes = base64.b64encode(ed25519.sign(offline_key, releases.message(VERSION, "0" * 64))).decode()
    of_no_release = base64.b64encode(ed25519.sign(offline_key, archive.sha256.encode())).decode()
    for signature in (archive.signed_by(own_key), of_other_bytes, of_no_release):
        body = agents.RegisterAgentRelease(version=VERSION, content=archive.content, signature=signature)
        with pytest.raises(errors.AgentSignatureInvalid):
            await operator.call(agents.AGENT_RELEASE_REGISTER, body)
    unsigned = agents.RegisterAgentRelease(version=VERSION, content=archive.content, signature="")
    with pytest.raises(errors.ValidationFailed):
        await operator.call(agents.AGENT_RELEASE_REGISTER, unsigned)
    assert (await operator.call(agents.AGENT_RELEASE_LIST)).items == []


async def test_an_operator_alone_cannot_install_even_a_signed_release(
    operator: Client, archive: Archive, offline_key: Path
) -> None:
    signature = archive.signed_by(offline_key)
    body = agents.RegisterAgentRelease(version=VERSION, content=archive.content, signature=signature)
    release = await operator.call(agents.AGENT_RELEASE_REGISTER, body)
    why = agents.ApproveAgentRelease(reason="trust me")
    with pytest.raises(errors.PermissionDenied):
        await operator.call(agents.AGENT_RELEASE_APPROVE, why, sha256=release.sha256)
    upgrade = agents.UpgradeAgent(sha256=release.sha256, reason="trust me")
    with pytest.raises(errors.AgentReleaseUnapproved):
        await operator.call(agents.NODE_UPGRADE_AGENT, upgrade, node_id="any")


@pytest.fixture
def taken_platform(tmp_path: Path) -> Iterator[fake_platform.Platform]:
    """A platform that does what the attacker wants. It has everything that a platform has, so not the offline key."""
    platform = fake_platform.Platform(tmp_path)
    platform.start()
    yield platform
    platform.stop()


def outcome_on_node(
    platform: fake_platform.Platform, folder: Path, archive: Archive, offline_key: Path, signature: str
) -> str:
    """Send the archive to a real agent as a release; return the code of its refusal, or empty if there is none."""
    agent, config = folder / "agent.pyz", folder / "agent.json"
    build.build(agent)
    settings = {"server": platform.url, "token": platform.enrolment_token, "name": "gpu-1"}
    config.write_text(json.dumps({**settings, "release_keys": [Path(f"{offline_key}.pub").read_text()]}))
    platform.agent_releases[archive.sha256] = archive.content
    platform.release_signatures[archive.sha256] = {"version": VERSION, "signature": signature}
    argv = [sys.executable, str(agent), "--config", str(config), "--state", str(folder / "state")]
    with (folder / "agent.log").open("wb") as log, subprocess.Popen(argv, stderr=log) as process:
        try:
            platform.until(lambda: bool(platform.nodes))
            (node_id,) = platform.nodes.values()
            upgrade = {"sha256": archive.sha256, "trial_s": 20}
            platform.deliver(platform.task(node_id, "agent.upgrade", upgrade))
            platform.until(lambda: bool(platform.results) or archive.trace.exists())
        finally:
            process.kill()
    return str(platform.results[0][1]["error"]["code"]) if platform.results else ""


@pytest.mark.parametrize("attempt", ["no signature", "a key of the attacker", "a signature of a true release"])
def test_a_platform_that_was_taken_over_runs_nothing_of_its_own_on_a_node(
    tmp_path: Path,
    taken_platform: fake_platform.Platform,
    archive: Archive,
    own_key: Path,
    offline_key: Path,
    attempt: str,
) -> None:
    signature = {
        "no signature": "",
        "a key of the attacker": archive.signed_by(own_key),
        "a signature of a true release": Archive(b"a true release", tmp_path).signed_by(offline_key),
    }[attempt]
    code = outcome_on_node(taken_platform, tmp_path, archive, offline_key, signature)
    assert code == "agent_signature_invalid"
    assert not archive.trace.exists()


def test_the_same_archive_runs_if_the_offline_key_signed_it(
    tmp_path: Path, taken_platform: fake_platform.Platform, archive: Archive, offline_key: Path
) -> None:
    """Shows that the file would exist if the attacks above had worked."""
    outcome_on_node(taken_platform, tmp_path, archive, offline_key, archive.signed_by(offline_key))
    assert archive.trace.exists()
