"""Deploy, watch, fail, understand, change and tear down, with a real server and a real controller process."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Any
Golden = Callable[[str, str], None]
Steady = Callable[[str], str]

_WITH_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
"""A session of its own whose terminal sends the signals of its keys."""


@pytest.fixture(scope="module")
def running(cloud: Cli) -> Iterator[Cli]:
    """An instance on gpu-1 and gpu-2, with gpu-1 in both roles."""
    ended = cloud(
        "deploy", "demo", "--name", "good", "--set", "head_allocation=gpu-1", "--set", "worker_allocations=gpu-1,gpu-2"
    )
    assert "gpu-2  install packages  succeeded" in ended.out
    assert ended.out.splitlines()[-1].startswith("deploy good succeeded in ")
    yield cloud
    cloud("decommission", "good", "--yes", "--reason", "the tests are over")
    assert "good" not in cloud("get", "instances", "-o", "name").out.split()


@pytest.fixture(scope="module")
def failed(cloud: Cli) -> Iterator[dict[str, Any]]:
    """An instance on gpu-3 and gpu-4 whose worker has no licence; yields its operation."""
    ended = cloud(
        *("deploy", "demo", "--name", "bad", "--set", "behaviour=fail"),
        *("--set", "head_allocation=gpu-3", "--set", "worker_allocations=gpu-4", "-o", "json"),
        expect=1,
    )
    error = json.loads(ended.err.splitlines()[-1])["error"]
    assert "no licence" in error["message"]
    yield ended.json
    cloud("decommission", "bad", "--yes")


@pytest.fixture(scope="module")
def hanging(cloud: Cli) -> str:
    """A deploy on gpu-5 that never ends by itself; its operation id."""
    ended = cloud(
        "deploy", "demo", "--name", "slow", "--set", "head_allocation=gpu-5", "--set", "behaviour=hang", "--detach"
    )
    assert "Follow it: gpuaas op follow op_" in ended.err
    return str(ended.out.strip())


def test_progress_is_one_plain_line_per_change(running: Cli, golden: Golden, steady: Steady) -> None:
    operation_id = running("get", "op", "--instance", "good", "-o", "name").out.split()[0]
    ended = running("op", "follow", operation_id)
    golden("follow.txt", "\n".join(sorted(steady(ended.out).split("\n"))))
    assert ended.err == ""


def test_members_and_operations_show_what_belongs_together(running: Cli, golden: Golden, steady: Steady) -> None:
    golden("members.txt", steady(running("get", "members", "--instance", "good").out))
    golden("operations.txt", steady(running("get", "ops", "--instance", "good").out.splitlines()[0]))
    members = running("get", "members", "--instance", "good", "-o", "json").json["items"]
    operation = running("get", "ops", "--instance", "good", "-o", "json").json["items"][0]
    assert {member["last_operation_id"] for member in members} == {operation["operation_id"]}
    assert {member["correlation_id"] for member in members} == {operation["correlation_id"]}


def test_cells_have_no_spaces_so_columns_can_be_cut(running: Cli) -> None:
    header, *lines = running("get", "nodes").out.splitlines()
    assert {len(line.split()) for line in lines} == {len(header.split())}


def test_access_shows_how_to_use_the_app(running: Cli, golden: Golden, steady: Steady) -> None:
    golden("access.txt", steady(running("access", "good").out))


def test_a_node_in_two_roles_means_the_role_that_can_do_it(running: Cli) -> None:
    would = running("member", "remove", "good", "gpu-1", "--dry-run")
    assert would.out.startswith("would remove 1 worker from good: gpu-1\n")
    assert would.err == "Nothing was changed.\n"


def test_a_drained_member_keeps_its_reason(running: Cli) -> None:
    running("member", "drain", "good", "gpu-2", "--reason", "fan broken")
    (line,) = [line for line in running("get", "members", "--instance", "good").out.splitlines() if "drained" in line]
    assert line.endswith("fan broken")


def test_an_operation_the_app_lacks_is_a_conflict(running: Cli) -> None:
    ended = running("member", "drain", "good", "gpu-1", "--role", "head", expect=5)
    assert "Demo does not offer drain for head" in ended.err


def test_a_failed_deploy_answers_every_question_on_one_page(
    failed: dict[str, Any], cloud: Cli, golden: Golden, steady: Steady
) -> None:
    page = cloud("describe", "operation", failed["operation_id"]).out
    golden("describe-failed-operation.txt", steady(page))
    for known in (failed["instance_id"], failed["correlation_id"], "no licence", "gpu-4", "exit: 203"):
        assert known in page
    assert "\x1b" not in page


def test_the_pages_of_the_instance_and_the_member_show_the_same_failure(
    failed: dict[str, Any], cloud: Cli, golden: Golden, steady: Steady
) -> None:
    golden("describe-failed-instance.txt", steady(cloud("describe", "instance", "bad").out))
    golden("describe-failed-member.txt", steady(cloud("describe", "member", "gpu-4").out))


def test_triage_gathers_all_of_one_correlation_id(failed: dict[str, Any], cloud: Cli) -> None:
    lines = cloud("triage", failed["correlation_id"]).out.splitlines()
    sources = {line.split()[1] for line in lines[1:] if line.startswith("20")}
    assert sources == {"operation", "step", "member", "event", "audit", "log"}
    moments = [line.split()[0] for line in lines[1:] if line.startswith("20")]
    assert moments == sorted(moments)
    assert [line.strip() for line in lines[-6:]] == [
        f"gpuaas describe operation {failed['operation_id']}",
        f"gpuaas op log {failed['operation_id']}",
        "",
        "Links",
        f"log: https://logs.example/q?id={failed['correlation_id']}",
        f"trace: https://traces.example/{failed['traceparent'].split('-')[1]}",
    ]
    bundle = cloud("triage", failed["correlation_id"], "-o", "json").json
    assert [link["kind"] for link in bundle["links"]] == ["log", "trace"]


def test_the_log_of_an_operation_shows_the_lines_of_its_app_without_secrets(
    failed: dict[str, Any], cloud: Cli, golden: Golden, steady: Steady
) -> None:
    shown = cloud("op", "log", failed["operation_id"]).out
    golden("op-log.txt", steady(shown))
    assert "demod --join [secret]" in shown
    assert [line for line in cloud("triage", failed["correlation_id"]).out.splitlines() if "demod --join" in line]


def test_triage_shows_the_tasks_of_nodes_with_their_result(cloud: Cli) -> None:
    allocation = cloud("allocation", "list", "-o", "json").json["items"][0]
    lines = cloud("triage", allocation["correlation_id"]).out.splitlines()
    (ended,) = [line for line in lines if "allocation.provision" in line and "succeeded" in line]
    assert f" on {allocation['node_name']}" in ended


def test_events_and_audit_are_found_by_correlation_id(failed: dict[str, Any], cloud: Cli) -> None:
    events = cloud("get", "events", "--correlation", failed["correlation_id"], "-o", "json").json["items"]
    assert {"apps.instance.requested", "apps.instance.failed"} <= {event["type"] for event in events}
    rows = cloud("get", "audit", "--correlation", failed["correlation_id"], "-o", "json").json["items"]
    assert "apps.instance.create" in {row["action"] for row in rows}


def test_waiting_ends_with_1_when_the_operation_failed(failed: dict[str, Any], cloud: Cli) -> None:
    ended = cloud("op", "wait", failed["operation_id"], expect=1)
    assert f"look: gpuaas describe operation {failed['operation_id']}" in ended.err


def test_waiting_has_an_end_of_its_own(hanging: str, cloud: Cli) -> None:
    ended = cloud("op", "wait", hanging, "--timeout", "0.5", expect=2)
    assert "it continues in the background (code=timeout)" in ended.err


def test_inputs_are_checked_before_anything_is_sent(cloud: Cli) -> None:
    ended = cloud("deploy", "demo", "--set", "head_alocation=gpu-1", expect=64)
    assert "did you mean head_allocation?" in ended.err
    assert "replicas" in cloud("deploy", "demo", "--set", "replicas=many", expect=64).err
    assert "no allocation gpu1" in cloud("deploy", "demo", "--set", "head_allocation=gpu1", expect=4).err


def test_control_c_detaches_and_prints_how_to_follow_again(
    hanging: str, cloud: Cli, tmp_path: Path, until: Callable[..., None]
) -> None:
    terminal, inside = pty.openpty()
    program = Path(sys.executable).with_name("gpuaas")
    process = subprocess.Popen(
        [sys.executable, "-c", _WITH_TERMINAL, str(program), "op", "follow", hanging],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=cloud.full_environment(TERM="xterm"),
        start_new_session=True,
    )
    os.close(inside)
    screen = Screen(terminal)
    try:
        until(lambda: "install packages" in screen.read(), "the tree shows the step")
        os.write(terminal, b"\x03")
        until(lambda: process.poll() is not None, "the command ends")
        assert process.returncode == 130
        assert f"gpuaas op follow {hanging}" in screen.read()
        assert cloud("get", "op", hanging, "-o", "json").json["status"] == "running"
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_an_interrupt_in_a_script_detaches_too(
    hanging: str, cloud: Cli, until: Callable[..., None], tmp_path: Path
) -> None:
    log = tmp_path / "follow.log"
    program = Path(sys.executable).with_name("gpuaas")
    with log.open("w") as file:
        process = subprocess.Popen(
            [str(program), "op", "follow", hanging], stdout=file, stderr=file, env=cloud.full_environment()
        )
    until(lambda: "install packages" in log.read_text(), "the first lines are out")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert "Detached. The operation continues in the background; nothing was cancelled." in log.read_text()


class Screen:
    """What a terminal has received so far."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._text = ""

    def read(self) -> str:
        while select.select([self._terminal], [], [], 0.05)[0]:
            try:
                self._text += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                break
        return self._text
