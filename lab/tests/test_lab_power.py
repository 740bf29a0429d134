"""Power may fail at any moment: what is at work on the machine then goes on, and tells it where it matters."""

import os
import signal
from pathlib import Path

from gpuaas_lab import cgroup, machine


class FailsAtOnce(cgroup.MachineCgroup):
    """Cut as soon as the machine's first process has come in."""

    def adopt(self, pid: int) -> None:
        super().adopt(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def group_in(folder: Path, **files: str) -> cgroup.MachineCgroup:
    """Plain files in the kernel's place."""
    group = FailsAtOnce(cgroup.Layout(folder), "mine", "gpu-1")
    (group.folder / "payload").mkdir(parents=True)
    for name, text in files.items():
        (group.folder / "payload" / f"cgroup.{name}").write_text(text)
    return group


def test_a_machine_may_lose_its_power_before_it_is_switched_on(tmp_path: Path) -> None:
    target = machine.Machine("mine", "gpu-1", tmp_path, group_in(tmp_path))
    machine.spawn(target, tmp_path)
    assert machine.console_log(target) == ""


def test_a_frozen_machine_may_end_before_it_is_thawed_to_be_shut_down(tmp_path: Path) -> None:
    target = machine.Machine("mine", "gpu-1", tmp_path, group_in(tmp_path, freeze="1"))
    machine.shut_down(target)
    assert (target.cgroup.folder / "cgroup.kill").read_text() == "1"
