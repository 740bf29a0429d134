"""A task with a handler that counts: what runs, what is refused, what is posted, and how often."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_agent import config, ed25519, errors, identity, journal, log, main, parameters, report, rules, tasks, wire
from gpuaas_agent.testing import openssl
from gpuaas_agent.testing import platform as testing_platform


class Bench:
    """An enrolled worker whose one handler, `test.count`, counts how often it ran."""

    def __init__(self, directory: Path, platform: testing_platform.Platform) -> None:
        self.executed: list[dict[str, Any]] = []
        self.stop = threading.Event()
        self.state = directory / "state"
        self.state.mkdir()
        settings = config.Config(directory / "agent.json", platform.url, "", platform.enrolment_token, "gpu-1")
        settings.path.write_text(json.dumps({"token": platform.enrolment_token}))
        (self.state / "task.pem").write_text(ed25519.public_key_pem(platform.task_key))
        server = wire.Server(platform.url, None)
        self.node_id = identity.enrol(server, settings, self.state, dict, self.stop)
        self.client = identity.NodeClient(server, self.node_id, self.state / "key.pem")
        self.worker = self.new_worker()

    def new_worker(self) -> tasks.Worker:
        handlers = {
            "test.count": rules.Handler({"word": parameters.text("[a-z]+")}, self._count),
            "test.fail": rules.Handler({}, self._fail),
            "test.later": rules.Handler({}, self._later),
            "test.chatty": rules.Handler({}, self._chatty),
            "test.crash": rules.Handler({}, lambda params: params["missing"]),
        }
        record = journal.Journal(self.state / "tasks")
        return tasks.Worker(self.client, record, self.state / "task.pem", handlers, self.stop)

    def handle(self, envelope: dict[str, Any], worker: tasks.Worker | None = None) -> bool:
        """Verify and run a task as the poll loop does; False if it has no result yet."""
        worker = worker or self.worker
        task = worker.verify(envelope)
        return task is not None and worker.handle(task)

    def _count(self, params: dict[str, Any]) -> dict[str, Any]:
        self.executed.append(params)
        return {"times": len(self.executed)}

    def _chatty(self, _params: dict[str, Any]) -> dict[str, Any]:
        log.info("handler.wrote")
        return {}

    def _later(self, _params: dict[str, Any]) -> dict[str, Any]:
        self.executed.append({})
        if len(self.executed) == 1:
            raise errors.TryLater("the platform is away")
        return {}

    def _fail(self, _params: dict[str, Any]) -> dict[str, Any]:
        raise errors.TaskFailed("disk_full", "no room left")


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[testing_platform.Platform]:
    started = testing_platform.Platform(tmp_path)
    started.start()
    yield started
    started.stop()


@pytest.fixture
def bench(tmp_path: Path, platform: testing_platform.Platform) -> Iterator[Bench]:
    made = Bench(tmp_path, platform)
    yield made
    made.stop.set()


def error_code(platform: testing_platform.Platform) -> tuple[str, str]:
    (result,) = platform.results
    return result[1]["status"], result[1]["error"]["code"]


def test_a_good_task_runs_once_and_is_reported(platform: testing_platform.Platform, bench: Bench) -> None:
    assert bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert bench.executed == [{"word": "go"}]
    result = dict(platform.results[0][1])
    assert 0 < result.pop("started_at_s") <= time.time()
    assert result.pop("took_s") >= 0
    assert result == {"status": "succeeded", "result": {"times": 1}, "error": None}


def test_every_line_that_is_logged_while_a_task_runs_has_its_correlation_id(
    platform: testing_platform.Platform, bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    envelope = platform.task(bench.node_id, "test.chatty", {})
    capsys.readouterr()
    assert bench.handle(envelope)
    assert bench.handle(platform.task("node_other", "test.chatty", {}))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["handler.wrote", "task.ended", "task.refused"]
    assert {line["correlation_id"] for line in lines} == {json.loads(envelope["payload"])["correlation_id"]}


def test_a_changed_payload_has_no_effect_and_is_not_reported(platform: testing_platform.Platform, bench: Bench) -> None:
    envelope = platform.task(bench.node_id, "test.count", {"word": "go"})
    envelope["payload"] = envelope["payload"].replace('"go"', '"gone"')
    assert not bench.handle(envelope)
    assert (bench.executed, platform.results, platform.seen("POST", "/result")) == ([], [], [])


@pytest.mark.parametrize("signature", ["", "not base64", "AAAA", None])
def test_a_task_without_a_usable_signature_has_no_effect(
    platform: testing_platform.Platform, bench: Bench, signature: Any
) -> None:
    envelope: dict[str, Any] = dict(platform.task(bench.node_id, "test.count", {"word": "go"}), signature=signature)
    assert not bench.handle(envelope)
    assert (bench.executed, platform.results) == ([], [])


def test_a_task_signed_with_another_key_has_no_effect(
    platform: testing_platform.Platform, bench: Bench, tmp_path: Path
) -> None:
    platform.task_key = openssl.make_key(tmp_path / "forged.key")
    assert not bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert (bench.executed, platform.results) == ([], [])


@pytest.mark.parametrize("task_id", ["../../etc/passwd", "task_1/../x", "task_1\n", "", "task_", 7])
def test_a_task_id_that_could_leave_the_journal_is_dropped(
    platform: testing_platform.Platform, bench: Bench, task_id: Any
) -> None:
    assert not bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}, task_id=task_id))
    assert (bench.executed, platform.results) == ([], [])


def test_an_expired_task_is_refused(platform: testing_platform.Platform, bench: Bench) -> None:
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}, expires_at_s=int(time.time()) - 1))
    assert (error_code(platform), bench.executed) == (("refused", "task_expired"), [])


def test_another_nodes_task_is_refused(platform: testing_platform.Platform, bench: Bench) -> None:
    bench.handle(platform.task("node_other", "test.count", {"word": "go"}))
    assert (error_code(platform), bench.executed) == (("refused", "task_other_node"), [])


def test_an_unknown_type_is_refused(platform: testing_platform.Platform, bench: Bench) -> None:
    bench.handle(platform.task(bench.node_id, "shell.run", {"command": "id"}))
    assert error_code(platform) == ("refused", "task_type_unknown")


@pytest.mark.parametrize("params", [{}, {"word": 1}, {"word": "UP"}, {"word": "go", "more": 1}, {"word": "go\n"}])
def test_parameters_that_do_not_match_are_refused(
    platform: testing_platform.Platform, bench: Bench, params: dict[str, Any]
) -> None:
    bench.handle(platform.task(bench.node_id, "test.count", params))
    assert (error_code(platform), bench.executed) == (("refused", "task_params_invalid"), [])


def test_a_failing_handler_is_reported_with_its_code(platform: testing_platform.Platform, bench: Bench) -> None:
    bench.handle(platform.task(bench.node_id, "test.fail"))
    assert error_code(platform) == ("failed", "disk_full")


def test_a_handler_that_crashes_fails_its_task_and_not_the_agent(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    assert bench.handle(platform.task(bench.node_id, "test.crash"))
    assert error_code(platform) == ("failed", "handler_crashed")


def test_a_task_that_cannot_be_done_yet_is_neither_recorded_nor_reported_until_it_is(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    envelope = platform.task(bench.node_id, "test.later")
    assert not bench.handle(envelope)
    assert platform.results == []
    assert bench.handle(envelope)
    assert [outcome["status"] for _, outcome in platform.results] == ["succeeded"]


def test_a_task_delivered_again_is_not_run_again_but_reported_again(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    envelope = platform.task(bench.node_id, "test.count", {"word": "go"})
    bench.handle(envelope)
    bench.handle(envelope, bench.new_worker())
    assert len(bench.executed) == 1
    assert [outcome["result"] for _, outcome in platform.results] == [{"times": 1}, {"times": 1}]


def test_a_recorded_result_that_was_never_posted_is_posted_at_the_next_start(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    entry = journal.Entry("task_9", "corr-9", time.time() + 60, {"status": "succeeded"}, posted=False)
    bench.worker.history.record(entry)
    thread = threading.Thread(target=main._work, args=(report.Reporter(bench.new_worker()),), daemon=True)
    thread.start()
    platform.until(lambda: bool(platform.results))
    testing_platform.poll(lambda: not bench.worker.history.unposted())
    assert platform.results == [("task_9", {"status": "succeeded"})]
    assert bench.worker.history.unposted() == []


def test_a_result_is_posted_after_a_restart_of_the_platform(platform: testing_platform.Platform, bench: Bench) -> None:
    envelope = platform.task(bench.node_id, "test.count", {"word": "go"})
    bench.client.call("PUT", "/node/v1/status", {})
    platform.stop()
    platform.forget_access_tokens()
    thread = threading.Thread(target=bench.handle, args=(envelope,), daemon=True)
    thread.start()
    testing_platform.poll(lambda: bool(bench.worker.history.unposted()))
    platform.start()
    thread.join(testing_platform.CALL_TIMEOUT_S)
    assert [outcome["status"] for _, outcome in platform.results] == ["succeeded"]
    assert (len(bench.executed), bench.worker.history.unposted()) == (1, [])


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_result_is_posted_until_it_is_accepted(
    platform: testing_platform.Platform, bench: Bench, status: int
) -> None:
    platform.refuse_result = lambda: status if len(platform.seen("POST", "/result")) < 2 else None
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert len(platform.results) == 1


@pytest.mark.parametrize("status", [404, 409])
def test_a_result_that_the_platform_finally_refuses_is_dropped(
    platform: testing_platform.Platform, bench: Bench, status: int
) -> None:
    platform.refuse_result = lambda: status
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert len(platform.seen("POST", "/result")) == 1
    assert bench.worker.history.unposted() == []


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_task_whose_result_the_platform_cannot_read_is_reported_as_failed(
    platform: testing_platform.Platform, bench: Bench, status: int
) -> None:
    platform.refuse_result = lambda: status if len(platform.seen("POST", "/result")) < 2 else None
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert error_code(platform) == ("failed", "result_refused")
    assert f"answered {status}" in platform.results[0][1]["error"]["message"]
    assert bench.worker.history.unposted() == []


def test_a_failed_report_that_is_refused_too_is_dropped(platform: testing_platform.Platform, bench: Bench) -> None:
    platform.refuse_result = lambda: 400
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert len(platform.seen("POST", "/result")) == 2
    assert bench.worker.history.unposted() == []


def test_a_token_refused_with_401_is_renewed_and_the_call_repeated(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    bench.client.call("PUT", "/node/v1/status", {})
    platform.forget_access_tokens()
    assert bench.client.call("PUT", "/node/v1/status", {}) == {"heartbeat_interval_s": 30.0}
    assert len(platform.seen("POST", "/token")) == 2


def test_a_token_is_used_again_until_most_of_its_life_is_over(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    for _ in range(3):
        bench.client.call("PUT", "/node/v1/status", {})
    assert len(platform.seen("POST", "/token")) == 1


def test_a_token_at_the_end_of_its_life_is_renewed_before_use(
    platform: testing_platform.Platform, bench: Bench
) -> None:
    platform.token_life_s = 0
    for _ in range(2):
        bench.client.call("PUT", "/node/v1/status", {})
    assert len(platform.seen("POST", "/token")) == 2
    assert len(platform.seen("PUT", "/status")) == 2


def test_journal_entries_are_removed_seven_days_after_their_expiry(tmp_path: Path) -> None:
    record = journal.Journal(tmp_path / "tasks")
    for name, expires_at_s in (("task_old", 1000.0), ("task_new", 2000.0)):
        record.record(journal.Entry(name, "c", expires_at_s, {}, posted=True))
    record.forget_old(now_s=1500.0 + journal.KEPT_AFTER_EXPIRY_S)
    assert record.find("task_old") is None
    assert record.find("task_new") is not None


def test_signing_and_verifying_write_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    private, public = tmp_path / "key.pem", tmp_path / "public.pem"
    ed25519.ensure_private_key(private)
    public.write_text(ed25519.public_key_pem(private))
    proof = ed25519.sign(private, b"message")
    assert ed25519.verify(public, b"message", proof)
    assert not ed25519.verify(public, b"massage", proof)
    assert not ed25519.verify(public, b"message", proof[:-1])


def test_an_entry_of_a_later_agent_can_be_read_after_a_rollback(tmp_path: Path) -> None:
    record = journal.Journal(tmp_path / "tasks")
    record.record(journal.Entry("task_1", "c", 1000.0, {}, posted=False))
    path = tmp_path / "tasks" / "task_1.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "a_later_field": 1}))
    assert record.find("task_1") == record.unposted()[0] == journal.Entry("task_1", "c", 1000.0, {}, posted=False)


def test_a_stopping_agent_starts_no_task(platform: testing_platform.Platform, bench: Bench) -> None:
    bench.stop.set()
    bench.handle(platform.task(bench.node_id, "test.count", {"word": "go"}))
    assert (bench.executed, platform.results) == ([], [])


class SignalledReporter(report.Reporter):
    """Sends SIGTERM to the agent as soon as its loop starts."""

    def run(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        self.worker.stop.wait()


def test_a_signal_during_the_start_of_the_loops_ends_the_agent_cleanly(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    before = {number: signal.signal(number, main._exit_on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(SystemExit):
            main.serve(SignalledReporter(bench.worker))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert bench.stop.is_set()
    assert "agent.stopped" in [json.loads(line)["event"] for line in capfd.readouterr().err.splitlines()]
