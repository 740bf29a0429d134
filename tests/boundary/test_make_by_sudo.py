"""`sudo make` leaves all files to the owner of the clone. Make prints what it would do; nothing is run."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("target", ["up", "down", "check"])
def test_what_needs_no_root_runs_as_the_owner_of_the_clone(target: str) -> None:
    commands = [line for line in _would_run(target, "OWNER=dev") if ".venv/bin/" in line]
    assert commands
    assert all("sudo -n -H -u dev .venv/bin/" in line for line in commands)


def test_tests_run_as_root_with_caches_outside_the_clone() -> None:
    last = _would_run("test", "OWNER=dev")[-1]
    assert last.startswith("PYTHONPYCACHEPREFIX=~root/")
    assert "sudo" not in last


@pytest.mark.parametrize("caller", ["", "root", "other-user"])
def test_who_does_not_own_the_clone_changes_nothing(caller: str) -> None:
    assert _would_run("up", f"SUDO_USER={caller}")[-1].startswith(".venv/bin/gpuaas up")


def _would_run(target: str, setting: str) -> list[str]:
    command = ["make", "--dry-run", "--no-print-directory", target, setting]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line.strip() for line in printed.stdout.splitlines() if line.strip()]
