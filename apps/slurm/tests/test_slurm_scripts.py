"""The app's scripts wait for other programs on the machine: a dead controller's last command, ending processes."""

import os
import subprocess
from pathlib import Path

from gpuaas_app_slurm.workload import packages, uninstall

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 17 (apt-get)"
ENDING_SLOWLY = 'echo "$@" >>"$0.calls"; [ "$(wc -l <"$0.calls")" -lt 15 ]'
"""pkill finds the process fourteen times."""
USERDEL = '[ "$(wc -l <"${0%/*}/pkill.calls")" = 15 ] && touch "$0.done"'


def run(script: str, *arguments: str, programs: Path) -> int:
    """Run a script as `Machine.script` does, with these programs before the system's on the search path."""
    path = f"{programs}:{os.environ['PATH']}"
    bash = ["bash", "-seuo", "pipefail", "--", *arguments]
    return subprocess.run(bash, input=script, text=True, env={**os.environ, "PATH": path}, check=False).returncode


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_an_update_waits_while_another_program_holds_the_lock_of_the_lists(tmp_path: Path) -> None:
    text = f'[ ! -e "$0.free" ] || {{ touch "$0.done"; exit; }}; touch "$0.free"; echo "{LOCKED}" >&2; exit 100'
    apt = program(tmp_path / "apt-get", text)
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == 0
    assert (tmp_path / "apt-get.done").exists()


def test_without_a_network_the_existing_package_lists_are_used(tmp_path: Path) -> None:
    apt = program(tmp_path / "apt-get", 'echo "E: Failed to fetch, blocked by a proxy" >&2; exit 100')
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == 0


def test_a_user_is_removed_after_its_last_process_has_ended(tmp_path: Path) -> None:
    program(tmp_path / "getent", "echo ada:x:2001:2001::/nonexistent:/bin/bash")
    program(tmp_path / "pkill", ENDING_SLOWLY)
    program(tmp_path / "userdel", USERDEL)
    assert run(uninstall.REMOVE_USERS, "ada", programs=tmp_path) == 0
    assert (tmp_path / "userdel.done").exists()
