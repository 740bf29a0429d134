"""What a lab can leave behind on a host. Tests of any part take one before and one after; nothing may be added."""

import json
import os
import re
import subprocess
from pathlib import Path

from gpuaas_lab import plan

NSPAWN_RUN_FOLDER = Path("/run/systemd/nspawn")


def host_snapshot(lab: str | None = None) -> set[str]:
    """One line per mount, network namespace, link, cgroup, nspawn process and nspawn run file of the whole host.

    With `lab`, lines that carry the name of another lab are left out, because others may be at work on the same host.
    """
    lines = _mounts() | _namespaces() | _links() | _cgroups() | _nspawn_processes() | _nspawn_run_files()
    if lab is None:
        return lines
    return {line for line in lines if not _is_of_another_lab(line, lab)} - _locks_of_other_labs(lab)


def _mounts() -> set[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return {f"mount {line.split()[4]}" for line in lines}


def _namespaces() -> set[str]:
    folder = Path("/run/netns")
    return {f"netns {entry.name}" for entry in folder.iterdir()} if folder.is_dir() else set()


def _links() -> set[str]:
    text = subprocess.run(["ip", "-json", "link", "show"], capture_output=True, text=True, check=True).stdout
    return {f"link {link['ifname']}" for link in json.loads(text)}


def _cgroups() -> set[str]:
    folders = {folder for folder, _, _ in os.walk("/sys/fs/cgroup")}
    return {f"cgroup {folder}" for folder in folders}


def _nspawn_processes() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if Path(words[0]).name == "systemd-nspawn":
            found.add(f"process {process.name} {' '.join(words[:6])}")
    return found


def _nspawn_run_files() -> set[str]:
    return {f"run file {path}" for path in NSPAWN_RUN_FOLDER.glob("*/*")}


def _is_of_another_lab(line: str, lab: str) -> bool:
    kind, _, name = line.partition(" ")
    if kind == "link":
        own = name == plan.bridge_name(lab) or name.startswith(plan.veth_prefix(lab))
        return not own and re.match(r"gp[lv][0-9a-f]{7}(-|$)", name) is not None
    if kind == "mount" and (folder := re.search(r"/labs/([a-z0-9]+)/machines/", name)):
        return folder[1] != lab
    # The first name decides: below it, a machine's own services may be called anything.
    found = re.search(r"\bgpuaas-([a-z0-9]+)(?=[-/]|$)", name)
    return found is not None and found[1] != lab


def _locks_of_other_labs(lab: str) -> set[str]:
    """nspawn names a lock after the root folder it guards, so the folder tells whose lock it is."""
    locks = set()
    for line in _mounts():
        point = Path(line.removeprefix("mount "))
        if "/machines/" in str(point) and _is_of_another_lab(line, lab) and point.exists():
            status = point.stat()
            locks.add(f"run file {NSPAWN_RUN_FOLDER}/locks/inode-{status.st_dev}:{status.st_ino}")
    return locks
