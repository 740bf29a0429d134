"""The agent replaces itself only by an agent that reports. Real processes against a real socket."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess
from gpuaas_agent import AGENT_VERSION, build, report
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
def agent(tmp_path: Path, platform: testing_platform.Platform) -> AgentProcess:
    return AgentProcess(tmp_path, platform.url, platform.enrolment_token)


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


def upgrade(platform: testing_platform.Platform, content: bytes, **changes: Any) -> None:
    sha256 = hashlib.sha256(content).hexdigest()
    platform.agent_releases.setdefault(sha256, content)
    (node_id,) = platform.nodes.values()
    params = {"sha256": sha256, "trial_s": LONG_TRIAL_S, **changes}
    platform.deliver(platform.task(node_id, "agent.upgrade", params))


def versions(platform: testing_platform.Platform) -> list[str]:
    """Return the versions that sent heartbeats outside a trial, in order."""
    beats = [beat.body for beat in platform.seen("PUT", "/status") if not beat.body.get("trial")]
    return list(dict.fromkeys(beat["agent_version"] for beat in beats))


def test_an_agent_that_reports_takes_over_and_posts_the_result(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    wanted = variant(tmp_path)
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, wanted)
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
    broken: dict[str, str],
    trial_s: int,
    reason: str,
) -> None:
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        before = agent.archive.read_bytes()
        upgrade(platform, variant(tmp_path, **broken), trial_s=trial_s)
        platform.until(lambda: bool(platform.results))
        beats = len(platform.seen("PUT", "/status"))
        platform.until(lambda: len(platform.seen("PUT", "/status")) > beats)
        assert process.poll() is None
    (_, outcome) = platform.results[0]
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "agent_did_not_report")
    assert reason in outcome["error"]["message"]
    assert (agent.archive.read_bytes(), versions(platform)) == (before, [AGENT_VERSION])


def test_an_archive_with_another_digest_than_the_signed_task_is_never_started(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    wanted = variant(tmp_path)
    platform.agent_releases[hashlib.sha256(wanted).hexdigest()] = wanted + b"more"
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, wanted)
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["error"]["code"] == "agent_digest_mismatch"
    assert not [beat for beat in platform.seen("PUT", "/status") if beat.body.get("trial")]


def test_an_upgrade_to_the_running_agent_changes_nothing(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
        upgrade(platform, agent.archive.read_bytes())
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["result"]["version"] == AGENT_VERSION
    assert not platform.seen("GET", "/agent-releases/")


def test_an_agent_killed_during_a_trial_starts_unchanged_and_repeats_the_trial(
    tmp_path: Path, platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    wanted = variant(tmp_path)
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "/status")))

        def die_on_trial(request: testing_platform.Request) -> None:
            if request.body and request.body.get("trial"):
                process.kill()

        platform.before_answer = die_on_trial
        upgrade(platform, wanted)
        platform.until(lambda: process.poll() is not None)
    platform.before_answer = lambda request: None
    assert agent.archive.read_bytes() != wanted
    with agent.running():
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["status"] == "succeeded"
    assert agent.archive.read_bytes() == wanted
