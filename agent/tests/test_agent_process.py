"""The built agent as a process of its own, against a platform on a real socket: enrolment, trust, restarts, SIGTERM."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcess
from gpuaas_agent import report
from gpuaas_agent.testing import openssl
from gpuaas_agent.testing import platform as testing_platform


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def agent(tmp_path: Path, platform: testing_platform.Platform) -> AgentProcess:
    return AgentProcess(tmp_path, platform.url, platform.enrolment_token)


def test_a_new_node_enrols_reports_itself_and_runs_a_task(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status") and platform.seen("PUT", "wait_s=")))
        (node_id,) = platform.nodes.values()
        platform.deliver(platform.task(node_id, "host.facts", task_id="task_1"))
        platform.until(lambda: bool(platform.results))
    task_id, outcome = platform.results[0]
    assert (task_id, outcome["status"], outcome["error"]) == ("task_1", "succeeded", None)
    assert outcome["result"]["ssh_port"] == 22
    posted = platform.seen("POST", "/result")[0]
    assert (posted.headers["X-Idempotency-Key"], posted.headers["X-Correlation-ID"]) == ("task_1", "corr-1")
    status = platform.seen("PUT", "/status")[0].body
    assert set(status) == {"agent_version", "agent_sha256", "boot_id", "facts"}
    assert status["agent_sha256"] == hashlib.sha256(agent.archive.read_bytes()).hexdigest()


def test_after_enrolment_the_token_is_gone_from_configuration_state_and_log(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
    assert "token" not in json.loads(agent.config.read_text())
    assert agent.config.stat().st_mode & 0o777 == 0o600
    written = [path for path in agent.state.rglob("*") if path.is_file()]
    assert [path for path in [*written, agent.log] if platform.enrolment_token.encode() in path.read_bytes()] == []
    secrets = [*platform.access_tokens, (agent.state / "key.pem").read_text().splitlines()[1]]
    assert not any(secret in agent.log.read_text() for secret in secrets)
    assert (agent.state / "key.pem").stat().st_mode & 0o777 == 0o600


def test_a_crash_between_sending_the_enrolment_and_saving_its_answer_gives_one_node(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    with agent.running() as process:

        def kill_agent(request: testing_platform.Request) -> None:
            if request.path.endswith("/enrol"):
                os.kill(process.pid, signal.SIGKILL)
                process.wait()

        platform.before_answer = kill_agent
        platform.until(lambda: process.poll() is not None)
    platform.before_answer = lambda request: None
    assert not (agent.state / "node.json").exists()
    with agent.running():
        platform.until(lambda: bool(platform.seen("PUT", "/status")))
    first, second = platform.seen("POST", "/enrol")
    assert first.body == second.body
    assert first.headers["X-Idempotency-Key"] == second.headers["X-Idempotency-Key"]
    assert len(platform.nodes) == 1


def test_an_enrolled_node_that_starts_again_does_not_enrol_again(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    for beats in (1, 2):
        with agent.running():
            platform.until(lambda wanted=beats: len(platform.seen("PUT", "/status")) >= wanted)  # type: ignore[misc]
    assert len(platform.seen("POST", "/enrol")) == 1


def test_a_refused_enrolment_ends_the_agent_with_an_error_that_names_the_fix(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    platform.enrolment_token = "another"
    with agent.running() as process:
        assert process.wait(testing_platform.CALL_TIMEOUT_S) == 78
    assert "gpuaas node token gpu-1" in str(agent.events()[-1]["error"])


def test_sigterm_ends_the_agent_at_once_and_cleanly(platform: testing_platform.Platform, agent: AgentProcess) -> None:
    with agent.running() as process:
        platform.until(lambda: bool(platform.seen("PUT", "wait_s=")))
        process.terminate()
        assert process.wait(report.INTERVAL_S_MAX - 5) == 0, "before its long poll is over"
    assert agent.events()[-1]["event"] == "agent.stopped"


def test_a_node_reconnects_to_a_platform_that_was_down_at_first_and_restarted_later(
    platform: testing_platform.Platform, agent: AgentProcess
) -> None:
    platform.stop()
    with agent.running():
        testing_platform.poll(lambda: agent.log.exists() and b"trust.fetch_failed" in agent.log.read_bytes())
        platform.start()
        platform.until(lambda: bool(platform.seen("PUT", "wait_s=")))
        platform.stop()
        platform.start()
        (node_id,) = platform.nodes.values()
        platform.deliver(platform.task(node_id, "host.facts"))
        platform.until(lambda: bool(platform.results))
    assert platform.results[0][1]["status"] == "succeeded"


@pytest.fixture
def authority(tmp_path: Path) -> openssl.CertificateAuthority:
    return openssl.make_authority(tmp_path, "authority")


@pytest.fixture
def tls_platform(tmp_path: Path, authority: openssl.CertificateAuthority) -> Iterator[testing_platform.Platform]:
    certificate = openssl.make_server_certificate(tmp_path, authority, "127.0.0.1")
    started = testing_platform.Platform(tmp_path, tls=certificate, ca_pem=authority.pem)
    started.start()
    yield started
    started.stop()


def test_over_tls_the_agent_enrols_when_the_fingerprint_is_right(
    tmp_path: Path, authority: openssl.CertificateAuthority, tls_platform: testing_platform.Platform
) -> None:
    agent = AgentProcess(tmp_path, tls_platform.url, tls_platform.enrolment_token, authority.sha256)
    with agent.running():
        tls_platform.until(lambda: bool(tls_platform.seen("PUT", "/status")))
    assert (agent.state / "ca.pem").read_text().strip() == authority.pem.strip()


def test_a_wrong_fingerprint_stops_the_agent_before_anything_is_sent(
    tmp_path: Path, tls_platform: testing_platform.Platform
) -> None:
    agent = AgentProcess(tmp_path, tls_platform.url, tls_platform.enrolment_token, "00" * 32)
    with agent.running() as process:
        assert process.wait(testing_platform.CALL_TIMEOUT_S) == 78
    assert [request.path for request in tls_platform.requests] == ["/node/v1/trust"]
    assert "does not match ca_sha256" in str(agent.events()[-1]["error"])


def test_a_server_that_repeats_the_right_ca_without_its_key_gets_nothing(
    tmp_path: Path, authority: openssl.CertificateAuthority
) -> None:
    other = openssl.make_authority(tmp_path, "other")
    certificate = openssl.make_server_certificate(tmp_path, other, "127.0.0.1")
    impostor = testing_platform.Platform(tmp_path, tls=certificate, ca_pem=authority.pem)
    impostor.start()
    agent = AgentProcess(tmp_path, impostor.url, impostor.enrolment_token, authority.sha256)
    with agent.running():
        testing_platform.poll(lambda: agent.log.exists() and b"CERTIFICATE_VERIFY_FAILED" in agent.log.read_bytes())
    impostor.stop()
    assert [request.path for request in impostor.requests] == ["/node/v1/trust"]
    assert not (agent.state / "task.pem").exists()
