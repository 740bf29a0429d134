"""Power can fail at any moment, also while a command starts or stops the machine."""

import os
import signal
from pathlib import Path

from gpuaas_lab import cgroup, machine


class CutAtStart(cgroup.MachineCgroup):
    """The power is cut as soon as the machine's first process has joined."""

    def adopt(self, pid: int) -> None:
        super().adopt(pid)
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def group_in(folder: Path, **files: str) -> cgroup.MachineCgroup:
    """Return a cgroup of plain files instead of the kernel's."""
    group = CutAtStart(cgroup.Layout(folder), "mine", "gpu-1")
    (group.folder / "payload").mkdir(parents=True)
    for name, text in files.items():
        (group.folder / "payload" / f"cgroup.{name}").write_text(text)
    return group


def test_a_power_cut_during_the_start_raises_no_error(tmp_path: Path) -> None:
    target = machine.Machine("mine", "gpu-1", tmp_path, group_in(tmp_path))
    machine.spawn(target, tmp_path, tmp_path)
    assert machine.console_log(target) == ""


def test_a_frozen_machine_that_ends_before_its_thaw_is_shut_down(tmp_path: Path) -> None:
    target = machine.Machine("mine", "gpu-1", tmp_path, group_in(tmp_path, freeze="1"))
    machine.shut_down(target)
    assert (target.cgroup.folder / "cgroup.kill").read_text() == "1"
