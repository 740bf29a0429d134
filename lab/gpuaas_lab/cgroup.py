"""Each machine has one cgroup subtree, by which it is found, frozen and powered off. Used by `machine.py` and `lab.py`.

Two layouts are supported: cgroup version 2 only, and the hybrid one with an additional tree name=systemd.
"""

import errno
import functools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuaas_lab import errors, shell

WANTED_CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


@dataclass(frozen=True)
class Layout:
    """The mount points of the cgroup trees on this host."""

    unified: Path
    named: Path | None = None

    def trees(self) -> list[Path]:
        return [self.unified] + ([self.named] if self.named else [])


def read_layout(mountinfo: str) -> Layout:
    """Return the cgroup trees in the text of /proc/self/mountinfo."""
    unified: list[Path] = []
    named: list[Path] = []
    for line in mountinfo.splitlines():
        fields, _, tail = line.partition(" - ")
        mount_point = Path(fields.split()[4])
        kind, _, options = tail.split(maxsplit=2)
        if kind == "cgroup2":
            unified.append(mount_point)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            named.append(mount_point)
    if not unified:
        raise errors.HostNotUsable("this host has no cgroup version 2 tree", "mount -t cgroup2 none /sys/fs/cgroup")
    return Layout(min(unified, key=lambda path: len(path.parts)), named[0] if named else None)


def host_layout() -> Layout:
    return read_layout(Path("/proc/self/mountinfo").read_text())


def lab_folder_name(lab: str) -> str:
    return f"gpuaas-{lab}"


@dataclass(frozen=True)
class MachineCgroup:
    """The subtree of one machine in each cgroup tree of the host."""

    layout: Layout
    lab: str
    machine: str

    @property
    def folder(self) -> Path:
        return self.layout.unified / lab_folder_name(self.lab) / self.machine

    @property
    def folders(self) -> list[Path]:
        return [tree / lab_folder_name(self.lab) / self.machine for tree in self.layout.trees()]

    def create_new(self) -> None:
        """Make a new, empty subtree.

        After a power cut the old subtree cannot be used again: the kernel counts the kills of a cgroup, and kills new
        processes in child groups that have another count. So systemd could not start services.
        """
        self.remove()
        for folder in self.folders:
            folder.mkdir(parents=True)
        for parent in (self.layout.unified, self.folder.parent):
            _enable_controllers(parent)

    def adopt(self, pid: int) -> None:
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(f"{pid}\n")

    def is_populated(self) -> bool:
        return "populated 1" in _read(self.folder / "cgroup.events")

    def is_frozen(self) -> bool:
        return _read(self.folder / "payload/cgroup.freeze").strip() == "1"

    def set_frozen(self, frozen: bool) -> None:
        """Freeze or thaw the machine, and wait until all its processes are frozen or thawed."""
        # The nspawn process is not frozen, because it must react to signals.
        payload, wanted = self.folder / "payload", "1" if frozen else "0"
        events = payload / "cgroup.events"
        try:
            (payload / "cgroup.freeze").write_text(wanted)
            succeeded = shell.wait_until(lambda: f"frozen {wanted}" in events.read_text(), timeout_s=20)
        except OSError as reason:
            raise errors.LabError(f"{self.machine} is starting or stopping", "gpuaas-lab status") from reason
        if not succeeded:
            raise errors.LabError(
                f"the processes of {self.machine} did not freeze or thaw within 20 s", f"cat {events}"
            )

    def kill(self) -> None:
        """Cut the power: kill all processes of the machine immediately."""
        try:
            (self.folder / "cgroup.kill").write_text("1")
        except OSError as reason:
            if not _means_gone(reason):
                raise
            return
        if not shell.wait_until(lambda: not self.is_populated(), timeout_s=20):
            raise errors.LabError(
                f"the processes of {self.machine} did not end within 20 s after a kill",
                f"cat {self.folder}/cgroup.procs",
            )

    def supervisor(self) -> int | None:
        """Return the id of the nspawn process. It is in a child group or, while it starts, in the machine's group."""
        for group in (self.folder / "supervisor", self.folder):
            if pids := _processes(group):
                return pids[0]
        return None

    def leader(self) -> int | None:
        """Return the id, on the host, of process 1 of the machine."""
        for group in (self.folder / "payload/init.scope", self.folder / "payload"):
            for pid in _processes(group):
                if _is_first_process(pid):
                    return pid
        return None

    def remove(self) -> None:
        for folder in self.folders:
            if folder.exists():
                _remove_subtree(folder)


def remove_lab(layout: Layout, lab: str) -> None:
    for tree in layout.trees():
        folder = tree / lab_folder_name(lab)
        if folder.exists():
            folder.rmdir()


def machines_of(layout: Layout, lab: str) -> list[str]:
    """Return the names of all machines that have a subtree, also of those without a record."""
    folders = [tree / lab_folder_name(lab) for tree in layout.trees()]
    return sorted({entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir() if entry.is_dir()})


def _enable_controllers(folder: Path) -> None:
    """Enable the available controllers for child groups. Skip those that version 1 uses or the kernel refuses."""
    offered = (folder / "cgroup.controllers").read_text().split()
    for controller in WANTED_CONTROLLERS:
        if controller in offered:
            try:
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
            except OSError as reason:
                shell.progress(f"machines will not have the cgroup controller {controller}: {reason.strerror}")


def _processes(group: Path) -> list[int]:
    return [int(line) for line in _read(group / "cgroup.procs").split()]


def _read(file: Path) -> str:
    """Return the content of a cgroup file; empty if the group no longer exists."""
    try:
        return file.read_text()
    except OSError as reason:
        if not _means_gone(reason):
            raise
        return ""


def _means_gone(reason: OSError) -> bool:
    # Reading or writing a file of a group that is being removed fails with "no such device".
    return reason.errno in (errno.ENOENT, errno.ENODEV)


def _is_first_process(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    own_depth = len(_own_namespace_pids())
    return len(numbers) == own_depth + 1 and numbers[-1] == "1"


def _own_namespace_pids() -> list[str]:
    status = Path("/proc/self/status").read_text()
    return next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])


def _remove_subtree(folder: Path) -> None:
    for group in _deepest_first(folder):
        # The kernel releases a group shortly after its last process has ended.
        if not shell.wait_until(functools.partial(_rmdir, group), timeout_s=10):
            raise errors.LabError(f"cgroup {group} is still in use", f"cat {group}/cgroup.procs")


def _deepest_first(folder: Path) -> Iterator[Path]:
    for path, _, _ in os.walk(folder, topdown=False):
        yield Path(path)


def _rmdir(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
