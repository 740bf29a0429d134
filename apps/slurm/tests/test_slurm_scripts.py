"""The app's scripts wait for other programs on the machine: a dead controller's last command, ending processes."""

import os
import subprocess
from pathlib import Path

import pytest
from gpuaas_app_slurm.workload import packages, uninstall
from gpuaas_sdk.failures import Temporary
from gpuaas_sdk.machine import Machine, Ran, shell
from gpuaas_sdk.testing.machines import FakeHost

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


def test_an_update_reports_that_another_program_holds_the_lock_of_the_lists(tmp_path: Path) -> None:
    apt = program(tmp_path / "apt-get", f'echo "{LOCKED}" >&2; exit 100')
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == packages.LOCKED_STATUS


@pytest.mark.parametrize(
    ("error", "status"),
    [("", 0), ("dpkg: error: dpkg frontend lock is locked by process 17", packages.LOCKED_STATUS), ("broken", 1)],
)
def test_a_repair_distinguishes_a_locked_dpkg_from_a_broken_one(tmp_path: Path, error: str, status: int) -> None:
    program(tmp_path / "dpkg", f'[ -z "{error}" ] || {{ echo "{error}" >&2; exit 2; }}')
    assert run(packages.REPAIR, programs=tmp_path) == status


async def test_a_purge_repairs_dpkg_before_it_reads_what_is_installed() -> None:
    host = FakeHost("gpu-2")
    await packages.purge(Machine(host), ("slurmd",))
    assert [host.commands[0].input, host.ran[1][0]] == [shell.grouped(packages.REPAIR).encode(), "dpkg-query"]


async def test_a_purge_waits_while_another_installation_runs() -> None:
    host = FakeHost("gpu-2", lambda argv: Ran(packages.LOCKED_STATUS, "", "locked by process 17"))
    with pytest.raises(Temporary, match="another installation of packages runs on gpu-2: locked by process 17"):
        await packages.purge(Machine(host), ("slurmd",))


def test_without_a_network_the_existing_package_lists_are_used(tmp_path: Path) -> None:
    apt = program(tmp_path / "apt-get", 'echo "E: Failed to fetch, blocked by a proxy" >&2; exit 100')
    assert run(packages.UPDATE, str(apt), "update", programs=tmp_path) == 0


def test_a_user_is_removed_after_its_last_process_has_ended(tmp_path: Path) -> None:
    program(tmp_path / "getent", "echo ada:x:2001:2001::/nonexistent:/bin/bash")
    program(tmp_path / "pkill", ENDING_SLOWLY)
    program(tmp_path / "userdel", USERDEL)
    assert run(uninstall.REMOVE_USERS, "ada", programs=tmp_path) == 0
    assert (tmp_path / "userdel.done").exists()
