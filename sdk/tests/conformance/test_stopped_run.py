"""A run of the conformance kit that is stopped leaves no controller, and no folder if it gets the time for that."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DEADLINE_S = 120


# The run does not end by itself: its controller never claims the deploy.
KIT = """import sys
from gpuaas_app_hello.conformance import DRIVER
from gpuaas_sdk import conformance

DRIVER.patience_s = 3600
sys.exit(conformance.main(DRIVER, (sys.executable, sys.argv[1]), ["--check", "operations"]))
"""
# While it is imported, asyncssh looks for a library with a temporary file, which stays if the process is killed then.
CONTROLLER = """import pathlib, sys, time
from gpuaas_app_hello.controller import app

if sys.argv[1] == "manifest":
    sys.exit(app.main(["manifest"]))
pathlib.Path(__file__).with_name("works").touch()
time.sleep(3600)
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """The folder for temporary files of the run."""
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


@pytest.fixture
def run(home: Path, temporary: Path) -> Iterator["subprocess.Popen[str]"]:
    """A run of the kit in which a controller works."""
    kit, controller = temporary.with_name("kit.py"), temporary.with_name("controller.py")
    kit.write_text(KIT)
    controller.write_text(CONTROLLER)
    env = {**os.environ, "PYTHONPATH": str(home), "TMPDIR": str(temporary)}
    command = [sys.executable, str(kit), str(controller)]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait(lambda: temporary.with_name("works").exists() or process.poll() is not None)
            yield process
        finally:
            process.kill()
            for number in _controllers(temporary):
                os.kill(number, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_clears_everything_away(
    number: signal.Signals, run: "subprocess.Popen[str]", temporary: Path
) -> None:
    run.send_signal(number)
    _, errors = run.communicate(timeout=DEADLINE_S)
    assert (run.returncode, errors) == (128 + number, f"stopped by {number.name}: not all checks have run\n")
    assert _controllers(temporary) == []
    assert list(temporary.iterdir()) == []


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv of util-linux")
def test_controllers_end_with_a_run_that_is_killed(run: "subprocess.Popen[str]", temporary: Path) -> None:
    run.kill()
    run.communicate(timeout=DEADLINE_S)
    _wait(lambda: _controllers(temporary) == [])


def _controllers(folder: Path) -> list[int]:
    """Return the ids of the controllers that work with this folder. A process that has ended has no command line."""
    lines = {int(path.parent.name): _content(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    prefix = f"{folder}/gpuaas-conformance-"
    return [number for number, line in lines.items() if prefix in line and "setpriv" not in line]


def _content(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # the process has ended


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.05)
