"""What the app runs on a machine waits for others there: a dead controller's last command, processes that end."""

import os
import subprocess
from pathlib import Path

from gpuaas_app_slurm import packages, teardown

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 17 (apt-get)"
ENDING_SLOWLY = 'echo "$@" >>"$0.calls"; [ "$(wc -l <"$0.calls")" -lt 15 ]'
"""pkill finds the process fourteen times."""
USERDEL = '[ "$(wc -l <"${0%/*}/pkill.calls")" = 15 ] && touch "$0.done"'


def run(script: str, *words: str, programs: Path) -> int:
    """As `Machine.script` runs it, with these programs before the system's."""
    path = f"{programs}:{os.environ['PATH']}"
    bash = ["bash", "-seuo", "pipefail", "--", *words]
    return subprocess.run(bash, input=script, text=True, env={**os.environ, "PATH": path}, check=False).returncode


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_package_lists_that_somebody_else_renews_are_waited_for(tmp_path: Path) -> None:
    text = f'[ ! -e "$0.free" ] || {{ touch "$0.done"; exit; }}; touch "$0.free"; echo "{LOCKED}" >&2; exit 100'
    apt = program(tmp_path / "apt-get", text)
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == 0
    assert (tmp_path / "apt-get.done").exists()


def test_without_a_network_the_package_lists_of_before_will_do(tmp_path: Path) -> None:
    apt = program(tmp_path / "apt-get", 'echo "E: Failed to fetch, blocked by a proxy" >&2; exit 100')
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == 0


def test_a_user_goes_when_the_last_of_its_processes_has_ended(tmp_path: Path) -> None:
    program(tmp_path / "getent", "echo somebody:x:2001:2001::/nonexistent:/bin/bash")
    program(tmp_path / "pkill", ENDING_SLOWLY)
    program(tmp_path / "userdel", USERDEL)
    assert run(teardown.REMOVE_USERS, "somebody", programs=tmp_path) == 0
    assert (tmp_path / "userdel.done").exists()
