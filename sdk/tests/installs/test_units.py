"""Commands for units of systemd."""

import os
import subprocess
from pathlib import Path

from gpuaas_sdk.installs import units
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeHost


async def test_units_are_enabled_without_a_reload_and_without_scripts_for_sysv() -> None:
    host = FakeHost("gpu-1")
    await Machine(host).run_all(units.enable("kv"), units.RELOAD, units.restart("kv"), units.disable("database"))
    skips = ("env", "SYSTEMCTL_SKIP_SYSV=1", "systemctl")
    assert host.ran == [
        (*skips, "enable", "-q", "--no-reload", "--root=/", "kv"),
        ("systemctl", "daemon-reload"),
        ("systemctl", "restart", "kv"),
        (*skips, "disable", "-q", "--no-reload", "--root=/", "database"),
    ]


async def test_units_that_are_stopped_for_good_do_not_start_with_the_machine() -> None:
    host = FakeHost("gpu-1")
    await Machine(host).run_all(units.stop("kv", "database"))
    assert host.ran == [("systemctl", "disable", "-q", "--now", "kv", "database")]


SYSTEMCTL = """#!/bin/sh
# A unit whose runs are counted in the file `runs`; `fails` lets a restart fail before it has any effect.
cd "$(dirname "$0")"
[ "$1" != show ] || exec cat runs
echo "$1" >> called
[ ! -e fails ] || exit 1
[ "$1" != restart ] || echo "$(($(cat runs) + 1))" > runs
"""


class CountedUnit:
    """The real command of `restart_once`, with a `systemctl` that counts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.env = folder, {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
        (folder / "systemctl").write_text(SYSTEMCTL)
        (folder / "systemctl").chmod(0o755)
        (folder / "runs").write_text("1\n")

    def restart_once(self, cause: str) -> int:
        shell, flag, script, name, _, *words = units.restart_once("kv", cause).argv
        argv = (shell, flag, script, name, str(self.folder / "notes"), *words)
        return subprocess.run(argv, env=self.env, check=False).returncode

    @property
    def called(self) -> list[str]:
        return (self.folder / "called").read_text().split()


def test_a_unit_restarts_once_for_each_cause(tmp_path: Path) -> None:
    unit = CountedUnit(tmp_path)
    for cause in ("op_1 install", "op_1 install", "op_1 again: install", "op_1 again: install"):
        assert unit.restart_once(cause) == 0
    assert unit.called == ["restart", "start", "restart", "start"]


def test_a_restart_that_had_no_effect_is_repeated(tmp_path: Path) -> None:
    unit = CountedUnit(tmp_path)
    (tmp_path / "fails").touch()
    assert unit.restart_once("op_1") == 1
    (tmp_path / "fails").unlink()
    assert unit.restart_once("op_1") == 0
    assert unit.called == ["restart", "restart"]


def test_a_restart_that_failed_after_the_new_run_began_is_completed(tmp_path: Path) -> None:
    unit = CountedUnit(tmp_path)
    (tmp_path / "fails").touch()
    assert unit.restart_once("op_1") == 1
    (tmp_path / "runs").write_text("2\n")
    (tmp_path / "fails").unlink()
    assert unit.restart_once("op_1") == 0
    assert unit.called == ["restart", "start"]


async def test_fake_hosts_show_a_restart_for_a_cause_as_systemd_sees_it() -> None:
    status = 1
    host = FakeHost("gpu-1", lambda argv: Ran(status, "", ""))
    await Machine(host).run_all(units.restart_once("kv", "op_1"), check=False)
    status = 0
    for cause in ("op_1", "op_1", "op_2"):
        await Machine(host).run_all(units.restart_once("kv", cause))
    assert host.ran == [("systemctl", verb, "kv") for verb in ("restart", "restart", "start", "restart")]
