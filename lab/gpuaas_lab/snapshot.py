"""What a lab can leave behind on a host. Tests of any part take one before and one after; nothing may be added."""

import os
import re
from contextlib import suppress
from pathlib import Path

from gpuaas_lab import network, plan

NSPAWN_RUN_FOLDER = Path("/run/systemd/nspawn")

_FOLDER_OF_LAB = re.compile(r"/labs/([a-z0-9]+)/machines/")
_GROUP_OF_LAB = re.compile(r"/gpuaas-[a-z0-9]+/")


def host_snapshot(lab: str | None = None) -> set[str]:
    """One line per mount, network namespace, link, cgroup, machine process and nspawn run file of the whole host.

    With `lab`, lines that carry the name of another lab are left out, because others may be at work on the same host.
    """
    with network.locked():
        lines = _mounts() | _namespaces() | _links() | _cgroups() | _machine_processes() | _nspawn_run_files()
    if lab is None:
        return lines
    own = {line for line in lines if not _is_of_another_lab(line, lab)}
    # `ip netns` mounts its folder for the first lab, and the last one to go takes it away.
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
    """The top of every tree, where a stray group would appear, and all of a lab's; other services' come and go."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    trees = [Path(line.split()[4]) for line in lines if " - cgroup" in line]
    tops = [group for tree in trees for group in tree.iterdir() if group.is_dir()]
    below = [Path(folder) for top in tops if _is_group_of_lab(top) for folder, _, _ in os.walk(top)]
    return {f"cgroup {group}" for group in (*tops, *below)}


def _is_group_of_lab(top: Path) -> bool:
    return _GROUP_OF_LAB.fullmatch(f"/{top.name}/") is not None


def _machine_processes() -> set[str]:
    """Processes that sit in a machine's cgroup, work on its disk, or run it."""
    return {line for process in Path("/proc").glob("[0-9]*") if (line := _machine_process(process))}


def _machine_process(process: Path) -> str | None:
    try:
        group = (process / "cgroup").read_text().rpartition("0::")[2].strip()
        root = os.readlink(process / "root")
        words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        # It has ended, or belongs to nobody's machine and is not for us to see.
        return None
    is_machines = _GROUP_OF_LAB.match(group) or _FOLDER_OF_LAB.search(root) or words[0].endswith("systemd-nspawn")
    return f"process {process.name} {group} {root} {' '.join(words[:6])}" if is_machines else None


def _nspawn_run_files() -> set[str]:
    return {f"run file {path}" for path in NSPAWN_RUN_FOLDER.glob("*/*")}


def _is_of_another_lab(line: str, lab: str) -> bool:
    kind, _, name = line.partition(" ")
    if kind == "link":
        own = name == plan.bridge_name(lab) or name.startswith(plan.veth_prefix(lab))
        return not own and re.match(r"gp[lv][0-9a-f]{7}(-|$)", name) is not None
    if kind in ("mount", "process") and (folder := _FOLDER_OF_LAB.search(name)):
        return folder[1] != lab
    # The first name decides: below it, a machine's own services may be called anything.
    found = re.search(r"\bgpuaas-([a-z0-9]+)(?=[-/]|$)", name)
    return found is not None and found[1] != lab


def _locks_of_other_labs(lab: str) -> set[str]:
    """Ours take no nspawn lock, but a neighbour of an older version may; a lock is named after the root it guards."""
    locks = set()
    for line in _mounts():
        point = Path(line.removeprefix("mount "))
        if "/machines/" not in str(point) or not _is_of_another_lab(line, lab):
            continue
        with suppress(OSError):  # its lab has just taken it off
            status = point.stat()
            locks.add(f"run file {NSPAWN_RUN_FOLDER}/locks/inode-{status.st_dev}:{status.st_ino}")
    return locks
