"""The agent replaces itself only by an agent that a pinned key signed and that reports. Real processes against a real
socket."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from agent_process import AgentProcess
from gpuaas_agent import AGENT_VERSION, build, ed25519, releases, report, signer
from gpuaas_agent.testing import platform as testing_platform

LONG_TRIAL_S, SHORT_TRIAL_S = 30, 2
NEXT_VERSION = "9.9.9"


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.heartbeat_interval_s = 0.2
    started.start()
    yield started
    started.stop()


@pytest.fixture
def release_key(tmp_path: Path) -> Path:
    """The private key of the operator's releases; its public key is in the file with the suffix .pub."""
    path = tmp_path / "release.key"
    signer.create_key(path)
    return path


@pytest.fixture
def agent(tmp_path: Path, platform: testing_platform.Platform, release_key: Path) -> AgentProcess:
    pinned = ed25519.one_line(ed25519.public_key_pem(release_key))
    return AgentProcess(tmp_path, platform.url, platform.enrolment_token, release_keys=[pinned])


def variant(directory: Path, **changed: str) -> bytes:
    """Return the agent with some of its files replaced."""
    archive = directory / "variant.pyz"
    build.build(archive)
    contents = {"gpuaas_agent/__init__.py": f'AGENT_VERSION = "{NEXT_VERSION}"\n', **changed}
    made = io.BytesIO()
    with zipfile.ZipFile(archive) as source, zipfile.ZipFile(made, "w") as target:
        for name in source.namelist():
            target.writestr(name, contents.get(name, source.read(name)))
    return made.getvalue()


def upgrade(
    platform: testing_platform.Platform,
    content: bytes,
    key: Path | None,
    sent: Mapping[str, str] = MappingProxyType({}),
    **changes: Any,
) -> None:
    """Deliver an upgrade to this content, signed with the key. `sent` replaces what the platform sends with it."""
    sha256 = hashlib.sha256(content).hexdigest()
    platform.agent_releases.setdefault(sha256, content)
    if key is not None:
        signature = ed25519.sign(key, releases.message(NEXT_VERSION, sha256))
        encoded = base64.b64encode(signature).decode()
        platform.release_signatures[sha256] = {"version": NEXT_VERSION, "signature": encoded, **sent}
    (node_id,) = platform.nodes.values()
    params = {"sha256": sha256, "trial_s": LONG_TRIAL_S, **changes}
    platform.deliver(platform.task(node_id, "agent.upgrade", params))


def versions(platform: testing_platform.Platform) -> list[str]:
    """Return the versions that sent heartbeats outside a trial, in order."""
    beats = [beat.body for beat in platform.seen("PUT", "/status") if not beat.body.get("trial")]
    return list(dict.fromkeys(beat["agent_version"] for beat in beats))


def test_an_agent_that_reports_takes_over_and_posts_the_result(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess, release_key: Path
) -> None:
    wanted = variant(tmp_path)
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, wanted, release_key)
        platform.until(lambda: bool(platform.results) and versions(platform) == [AGENT_VERSION, NEXT_VERSION])
        assert process.poll() is None
    (result,) = platform.results
    assert result[1]["result"] == {"sha256": hashlib.sha256(wanted).hexdigest(), "version": NEXT_VERSION}
    assert agent.archive.read_bytes() == wanted
    assert [path.name for path in tmp_path.iterdir() if "candidate" in path.name] == []


CRASHES = 'raise SystemExit("this build is broken")\n'
HANGS = "import time\n\ntime.sleep(3600)\n"
SILENT = Path(report.__file__).read_text() + "\nimport threading\nReporter.run = lambda _: threading.Event().wait()\n"


@pytest.mark.parametrize(
    ("broken", "trial_s", "reason"),
    [
        ({"__main__.py": CRASHES}, LONG_TRIAL_S, "this build is broken"),
        ({"__main__.py": HANGS}, SHORT_TRIAL_S, f"did not end within {SHORT_TRIAL_S} s"),
        ({"gpuaas_agent/report.py": SILENT}, SHORT_TRIAL_S, f"did not end within {SHORT_TRIAL_S} s"),
        ({"gpuaas_agent/tasks.py": "no Python at all"}, LONG_TRIAL_S, "SyntaxError"),
    ],
    ids=["crashes", "hangs", "never reports", "does not compile"],
)
def test_an_agent_that_does_not_report_never_replaces_the_old_one(
    tmp_path: Path,
    platform: testing_platform.Platform,
    agent: AgentProcess,
    release_key: Path,
    broken: dict[str, str],
    trial_s: int,
    reason: str,
) -> None:
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        before = agent.archive.read_bytes()
        upgrade(platform, variant(tmp_path, **broken), release_key, trial_s=trial_s)
        platform.until(lambda: bool(platform.results))
        beats = len(platform.seen("PUT", "/status"))
        platform.until(lambda: len(platform.seen("PUT", "/status")) > beats)
        assert process.poll() is None
    (_, outcome) = platform.results[0]
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "agent_did_not_report")
    assert reason in outcome["error"]["message"]
    assert (agent.archive.read_bytes(), versions(platform)) == (before, [AGENT_VERSION])


def test_an_archive_with_another_digest_than_the_signed_task_is_never_started(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess, release_key: Path
) -> None:
    wanted = variant(tmp_path)
    platform.agent_releases[hashlib.sha256(wanted).hexdigest()] = wanted + b"more"
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, wanted, release_key)
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["error"]["code"] == "agent_digest_mismatch"
    assert not [beat for beat in platform.seen("PUT", "/status") if beat.body.get("trial")]


def test_an_upgrade_to_the_running_agent_changes_nothing(
    platform: testing_platform.Platform, agent: AgentProcess, release_key: Path
) -> None:
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, agent.archive.read_bytes(), release_key)
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["result"]["version"] == AGENT_VERSION
    assert not platform.seen("GET", "/agent-releases/")


def test_an_agent_killed_during_a_trial_starts_unchanged_and_repeats_the_trial(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess, release_key: Path
) -> None:
    wanted = variant(tmp_path)
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))

        def die_on_trial(request: testing_platform.Request) -> None:
            if request.body and request.body.get("trial"):
                process.kill()

        platform.before_answer = die_on_trial
        upgrade(platform, wanted, release_key)
        platform.until(lambda: process.poll() is not None)
    platform.before_answer = lambda request: None
    assert agent.archive.read_bytes() != wanted
    with agent.running():
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["status"] == "succeeded"
    assert agent.archive.read_bytes() == wanted


PROOF_OF_A_RUN = "import pathlib\n\npathlib.Path({path!r}).touch()\n"
OTHER_PURPOSE = b"gpuaas-node-token\n"


def refused(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess, key: Path | None, **sent: str
) -> str:
    """Deliver an archive that leaves a file if anything of it runs; return the code with which the agent refuses it."""
    trace = tmp_path / "it-ran"
    content = variant(tmp_path, **{"__main__.py": PROOF_OF_A_RUN.format(path=str(trace))})
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, content, key, sent)
        platform.until(lambda: bool(platform.results))
        assert process.poll() is None
    assert not trace.exists()
    assert not [path.name for path in tmp_path.iterdir() if "candidate" in path.name]
    code: str = platform.results[0][1]["error"]["code"]
    return code


def installed(platform: testing_platform.Platform, agent: AgentProcess, content: bytes, key: Path) -> None:
    """Upgrade the agent to this content, and wait for its result. It may first send an earlier result once more."""
    with agent.running():
        upgrade(platform, content, key)
        done = {"sha256": hashlib.sha256(content).hexdigest(), "version": NEXT_VERSION}
        platform.until(lambda: any(outcome["result"] == done for _, outcome in platform.results))
    assert agent.archive.read_bytes() == content


def test_a_release_without_a_signature_is_never_started(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    assert refused(tmp_path, platform, agent, None) == "agent_signature_invalid"


def test_a_release_that_another_key_signed_is_never_started(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    other = tmp_path / "other.key"
    signer.create_key(other)
    assert refused(tmp_path, platform, agent, other) == "agent_signature_invalid"


@pytest.mark.parametrize("sent", [{"version": "9.9.8"}, {"signature": "no base64!"}, {"signature": ""}])
def test_a_signature_that_does_not_fit_starts_nothing(
    tmp_path: Path,
    platform: testing_platform.Platform,
    agent: AgentProcess,
    release_key: Path,
    sent: dict[str, str],
) -> None:
    assert refused(tmp_path, platform, agent, release_key, **sent) == "agent_signature_invalid"


def test_a_signature_by_the_release_key_for_another_purpose_starts_nothing(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess, release_key: Path
) -> None:
    elsewhere = base64.b64encode(ed25519.sign(release_key, OTHER_PURPOSE)).decode()
    assert refused(tmp_path, platform, agent, release_key, signature=elsewhere) == "agent_signature_invalid"


def test_an_agent_without_a_pinned_key_refuses_until_one_is_pinned_on_its_machine(
    tmp_path: Path, platform: testing_platform.Platform, release_key: Path
) -> None:
    agent = AgentProcess(tmp_path, platform.url, platform.enrolment_token)
    assert refused(tmp_path, platform, agent, release_key) == "agent_no_release_key"
    (_, outcome) = platform.results.pop()
    assert "pin-release-key FILE" in outcome["error"]["message"]
    assert not platform.seen("GET", "/agent-releases/")

    agent.pin(Path(f"{release_key}.pub"))
    installed(platform, agent, variant(tmp_path), release_key)


def test_during_a_change_of_keys_both_keys_are_accepted(tmp_path: Path, platform: testing_platform.Platform) -> None:
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    agent = AgentProcess(tmp_path, platform.url, platform.enrolment_token, release_keys=[signer.create_key(old)])
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
    signer.create_key(new)
    for _ in range(2):
        agent.pin(Path(f"{new}.pub"))
    assert len(json.loads(agent.config.read_text())["release_keys"]) == 2
    assert agent.config.stat().st_mode & 0o777 == 0o600
    for key in (old, new):
        installed(platform, agent, variant(tmp_path, **{"gpuaas_agent/host/__init__.py": f"# {key.name}"}), key)
