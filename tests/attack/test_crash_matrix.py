"""Attack: the controller of an app and the platform are killed in turns, at random instants of an operation. Each
operation must end once, without an effect that happens twice.

`make bench ARGS="crashes --app APP"` does the same with every operation of an app, at 300 instants each.

Long: `make test-crashes` runs it."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from bench import crashes

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("crashing_app.py")


@functools.cache
def has_private_networks() -> bool:
    return crashes.in_private_network(["true"], capture_output=True).returncode == 0


def interrupted(fault: str) -> "subprocess.CompletedProcess[str]":
    if not has_private_networks():
        pytest.skip("needs root or user namespaces")
    command = ["env", f"PYTHONPATH={PROGRAM.parents[2]}", sys.executable, str(PROGRAM), fault]
    return crashes.in_private_network(command, capture_output=True, text=True)


def test_an_operation_ends_once_and_has_its_effects_once_although_controller_and_platform_are_killed() -> None:
    ran = interrupted("none")
    assert ran.returncode == 0, ran.stdout + ran.stderr[-3000:]


def test_a_step_that_is_not_safe_to_repeat_is_found() -> None:
    ran = interrupted("appends")
    assert ran.returncode == 1, ran.stdout + ran.stderr[-3000:]
    assert "more often than undisturbed: n2: file /opt/gpuaas-work-hello/log" in ran.stdout, ran.stdout
