"""List everything that a lab can leave on a host. Tests compare the lists before and after a lab."""

import os
import re
from contextlib import suppress
from pathlib import Path

from gpuaas_lab import network, plan

NSPAWN_RUN_FOLDER = Path("/run/systemd/nspawn")

_FOLDER_OF_LAB = re.compile(r"/labs/([a-z0-9]+)/machines/")
_GROUP_OF_LAB = re.compile(r"/gpuaas-[a-z0-9]+/")


def host_snapshot(lab: str | None = None) -> set[str]:
    """Return one line per mount, network namespace, link, cgroup, machine process and nspawn run file of the host.

    With `lab`, leave out the lines of other labs, because they may run on the same host at the same time.
    """
    with network.locked():
        lines = _mounts() | _namespaces() | _links() | _cgroups() | _machine_processes() | _nspawn_run_files()
    if lab is None:
        return lines
    own = {line for line in lines if not _is_of_another_lab(line, lab)}
    # `ip netns` mounts this folder for the first lab, and the last lab unmounts it.
    shared = {"mount /run/netns"} if lines - own else set()
    return own - shared - _locks_of_other_labs(lab)


def _mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {f"mount {line.split()[4]}" for line in lines}


def _namespaces() -> set[str]:
    folder = Path("/run/netns")
    return {f"netns {entry.name}" for entry in folder.iterdir()} if folder.is_dir() else set()


def _links() -> set[str]:
    return {f"link {name}" for name in network.link_names()}


def _cgroups() -> set[str]:
    """List the top groups of every cgroup tree and all groups of labs. Other groups are left out: they change often."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    trees = [Path(line.split()[4]) for line in lines if " - cgroup" in line]
    tops = [group for tree in trees for group in tree.iterdir() if group.is_dir()]
    below = [Path(folder) for top in tops if _is_group_of_lab(top) for folder, _, _ in os.walk(top)]
    return {f"cgroup {group}" for group in (*tops, *below)}


def _is_group_of_lab(top: Path) -> bool:
    return _GROUP_OF_LAB.fullmatch(f"/{top.name}/") is not None


def _machine_processes() -> set[str]:
    """List the processes that are in a machine's cgroup, use its disk, or run it."""
    return {line for process in Path("/proc").glob("[0-9]*") if (line := _machine_process(process))}


def _machine_process(process: Path) -> str | None:
    try:
        group = (process / "cgroup").read_text().rpartition("0::")[2].strip()
        root = os.readlink(process / "root")
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        # The process has ended, or it is not one of a machine and cannot be read.
        return None
    is_of_machine = _GROUP_OF_LAB.match(group) or _FOLDER_OF_LAB.search(root) or words[0].endswith("systemd-nspawn")
    return f"process {process.name} {group} {root} {' '.join(words[:6])}" if is_of_machine else None


def _nspawn_run_files() -> set[str]:
    return {f"run file {path}" for path in NSPAWN_RUN_FOLDER.glob("*/*")}


def _is_of_another_lab(line: str, lab: str) -> bool:
    kind, _, name = line.partition(" ")
    if kind == "link":
        own = name == plan.bridge_name(lab) or name.startswith(plan.veth_prefix(lab))
        return not own and re.match(r"gp[lv][0-9a-f]{7}(-|$)", name) is not None
    if kind in ("mount", "process") and (folder := _FOLDER_OF_LAB.search(name)):
        return folder[1] != lab
    # Only the first match counts: groups below it belong to services on the machine and can have any name.
    owner = re.search(r"\bgpuaas-([a-z0-9]+)(?=[-/]|$)", name)
    return owner is not None and owner[1] != lab


def _locks_of_other_labs(lab: str) -> set[str]:
    """Return the nspawn locks of other labs, named by the inode of the root. Older versions of the lab use them."""
    locks = set()
    for line in _mounts():
        point = Path(line.removeprefix("mount "))
        if "/machines/" not in str(point) or not _is_of_another_lab(line, lab):
            continue
        with suppress(OSError):  # its lab has just unmounted it
            status = point.stat()
            locks.add(f"run file {NSPAWN_RUN_FOLDER}/locks/inode-{status.st_dev}:{status.st_ino}")
    return locks
