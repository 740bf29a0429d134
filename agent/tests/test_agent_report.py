"""Urgent tasks run beside a long one: a real download that hangs, and tasks that are delivered while it does."""

from __future__ import annotations

import getpass
import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import config, ed25519, identity, journal, report, rules, tasks, wire
from gpuaas_agent.handlers import artifact
from gpuaas_agent.host import claims
from gpuaas_agent.testing import platform as testing_platform

CONTENT = b"x" * 1000
FETCH = {
    "placement_id": "plc_1",
    "allocation_id": "alloc_1",
    "user": getpass.getuser(),
    "mode": "0644",
    "digest": "sha256:" + hashlib.sha256(CONTENT).hexdigest(),
    "size_bytes": len(CONTENT),
}


class Node:
    """An agent's three threads, a handler that downloads and one that counts."""

    def __init__(self, directory: Path, platform: testing_platform.Platform) -> None:
        self.platform, self.stop, state = platform, threading.Event(), directory / "state"
        state.mkdir()
        settings = config.Config(directory / "agent.json", platform.url, "", platform.enrolment_token, "gpu-1")
        settings.path.write_text(json.dumps({"token": platform.enrolment_token}))
        (state / "task.pem").write_text(ed25519.public_key_pem(platform.task_key))
        server = wire.Server(platform.url, None)
        self.node_id = identity.enrol(server, settings, state, dict, self.stop)
        client = identity.NodeClient(server, self.node_id, state / "key.pem")
        self.counted, self.waiting, self.go_on = 0, threading.Event(), threading.Event()
        handlers = {
            "artifact.fetch": rules.Handler(dict.fromkeys(FETCH, bool), lambda params: artifact.fetch(params, client)),
            "test.count": rules.Handler({}, self._count),
            "test.wait": rules.Handler({}, self._wait),
        }
        self.worker = tasks.Worker(client, journal.Journal(state / "tasks"), state / "task.pem", handlers, self.stop)
        self._reporter = report.Reporter(self.worker)
        lanes = self._reporter.urgent, self._reporter.ordinary
        self._lanes = [threading.Thread(target=lane.run, daemon=True) for lane in lanes]
        self._reports = threading.Thread(target=self._reporter.run, daemon=True)
        for thread in (*self._lanes, self._reports):
            thread.start()

    def end(self) -> None:
        """Stop the agent, and return when its threads have ended: none may write into a folder that is removed."""
        self.stop.set()
        self.go_on.set()
        _join(self._reports)
        # A lane that waits for its next task ends when it gets one: an agent that stops runs no task.
        never_run = rules.Task("task_last", self.node_id, "test.count", {}, 0, "corr-last")
        for lane in (self._reporter.urgent, self._reporter.ordinary):
            lane.start(never_run)
        for thread in self._lanes:
            _join(thread)

    def deliver(
        self, task_id: str, kind: str, params: dict[str, Any] | None = None, *, is_urgent: bool = False
    ) -> None:
        envelope = self.platform.task(self.node_id, kind, params, task_id=task_id)
        self.platform.deliver(envelope, is_urgent=is_urgent)

    def done(self) -> list[str]:
        return [task_id for task_id, _ in self.platform.results]

    def _wait(self, _params: dict[str, Any]) -> dict[str, Any]:
        self.waiting.set()
        self.go_on.wait()
        return {}

    def _count(self, _params: dict[str, Any]) -> dict[str, Any]:
        self.counted += 1
        return {}


def _join(thread: threading.Thread) -> None:
    thread.join(testing_platform.CALL_TIMEOUT_S)
    assert not thread.is_alive()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.artifacts["plc_1"] = CONTENT
    started.heartbeat_interval_s = 0.3
    started.start()
    yield started
    started.stop()


@pytest.fixture
def let_through(platform: testing_platform.Platform) -> Iterator[threading.Event]:
    """Until it is set, the platform does not answer the request for the content."""
    event = threading.Event()

    def hold_back(request: testing_platform.Request) -> None:
        if "/artifact-content/" in request.path:
            event.wait()

    platform.before_answer = hold_back
    yield event
    event.set()


@pytest.fixture
def node(
    tmp_path: Path,
    platform: testing_platform.Platform,
    let_through: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Node]:
    """Its first task is a download that hangs."""
    monkeypatch.setattr(artifact, "ARTIFACTS", tmp_path / "artifacts")
    monkeypatch.setattr(claims, "CLAIMS", tmp_path / "claims")
    claims.CLAIMS.mkdir()
    (claims.CLAIMS / getpass.getuser()).write_text("alloc_1\n")
    made = Node(tmp_path, platform)
    made.deliver("task_long", "artifact.fetch", FETCH)
    platform.until(lambda: bool(platform.seen("GET", "/artifact-content/")))
    yield made
    let_through.set()
    made.end()


def test_urgent_tasks_run_once_each_while_a_download_hangs(
    platform: testing_platform.Platform, node: Node, let_through: threading.Event
) -> None:
    for number in range(3):
        node.deliver(f"task_{number}", "test.count", is_urgent=True)
        platform.until(lambda wanted=number + 1: len(node.done()) == wanted)  # type: ignore[misc]
    assert node.done() == ["task_0", "task_1", "task_2"]
    let_through.set()
    platform.until(lambda: "task_long" in node.done())
    assert (len(node.done()), node.counted) == (4, 3)
    assert [outcome["status"] for _, outcome in platform.results] == ["succeeded"] * 4


def test_the_next_ordinary_task_starts_after_the_long_one(
    platform: testing_platform.Platform, node: Node, let_through: threading.Event
) -> None:
    node.deliver("task_next", "test.count")
    platform.until(lambda: bool(platform.seen("PUT", "busy_with=task_long")))
    node.deliver("task_urgent", "test.count", is_urgent=True)
    platform.until(lambda: bool(node.done()))
    let_through.set()
    platform.until(lambda: len(node.done()) == 3)
    assert node.done() == ["task_urgent", "task_long", "task_next"]


def test_an_agent_that_stops_waits_for_every_handler_that_runs(node: Node, let_through: threading.Event) -> None:
    assert not node.worker.running.wait_until_none(0)
    let_through.set()
    assert node.worker.running.wait_until_none(testing_platform.CALL_TIMEOUT_S)


def test_an_agent_reports_and_waits_on_one_connection(platform: testing_platform.Platform, node: Node) -> None:
    """The second connection is the download, which has its own."""
    platform.until(lambda: len(platform.seen("PUT", "wait_s=")) > 2)
    assert not platform.seen("GET", "/tasks")
    assert platform.connections_made == 3, "enrolment by the test, reports, the download"


def test_reports_go_on_without_asking_for_tasks_while_an_urgent_task_runs(
    platform: testing_platform.Platform, node: Node
) -> None:
    node.deliver("task_urgent", "test.wait", is_urgent=True)
    assert node.waiting.wait(testing_platform.CALL_TIMEOUT_S)
    before = len(platform.seen("PUT", "/status"))
    platform.until(lambda: len(platform.seen("PUT", "/status")) > before + 2)
    assert not any("wait_s" in request.path for request in platform.seen("PUT", "/status")[before + 1 :])
    node.go_on.set()
    platform.until(lambda: "task_urgent" in node.done())
