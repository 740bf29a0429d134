"""What a machine is made of, so that before and after can be compared: files, accounts, packages, units, processes.

Left out, because any package installation anywhere changes them and they configure nothing: the package managers' own
records, caches and logs, the account tools' backups, and the journal. Left out too: the agent's own list of ended
grants, which it renews whenever a certificate is no longer good, and the content of the folder that all machines share:
it is no part of a machine, and the homes on it stay when a cluster ends."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_LAB = Path(sys.executable).with_name("gpuaas-lab")
_SCAN = r"""
import hashlib, json, os, pwd, grp, subprocess, sys

SKIP = ("/proc", "/sys", "/dev", "/run", "/tmp", "/srv/packages", "/var/cache", "/var/log/journal", "/var/log/apt",
        "/var/lib/apt", "/var/lib/dpkg", "/var/lib/ucf", "/var/lib/systemd", "/var/lib/gpuaas-agent", "/var/tmp",
        "/etc/gpuaas/ssh/revoked_", "/etc/gpuaas/ssh/.", "/shared/")
SKIP_FILES = {"/etc/ld.so.cache", "/var/log/dpkg.log", "/var/log/alternatives.log", "/etc/passwd-", "/etc/shadow-",
              "/etc/group-", "/etc/gshadow-", "/etc/subuid-", "/etc/subgid-", "/etc/.pwd.lock", "/var/log/lastlog",
              "/var/log/wtmp", "/var/log/btmp", "/var/log/faillog"}

# Processes of this scan, and services that systemd starts and ends itself.
PASSING = {"python3", "nsenter", "ssh-keygen", "sshd", "sshd-session", "sshd-auth", "sudo", "dpkg-query", "systemctl",
           "systemd-timedat", "systemd-hostnam", "systemd-logind", "systemd-tmpfile", "(sd-pam)"}
# The agent runs small programs for every heartbeat.
AGENT = "/gpuaas-agent.service"

def skipped(path):
    return path in SKIP_FILES or path.startswith(SKIP) or path.endswith("__pycache__")

def files():
    found = {}
    for parent, folders, names in os.walk("/"):
        folders[:] = [name for name in folders if not skipped(os.path.join(parent, name))]
        for name in [*folders, *names]:
            path = os.path.join(parent, name)
            if skipped(path):
                continue
            try:
                found[path] = described(path)
            except FileNotFoundError:  # it is gone since its folder was read
                continue
    return found

def described(path):
    stat = os.lstat(path)
    entry = [oct(stat.st_mode), stat.st_uid, stat.st_gid]
    if os.path.islink(path):
        entry.append(os.readlink(path))
    elif os.path.isfile(path):
        entry.append(hashlib.sha256(open(path, "rb").read()).hexdigest()[:16])
    return entry

def lines(*command):
    # systemctl fails if systemd takes too long to answer, as on a busy machine. No output is then no empty list.
    for _ in range(10):
        ran = subprocess.run(command, capture_output=True, text=True)
        if ran.returncode == 0:
            return sorted(line for line in ran.stdout.splitlines() if line)
    sys.exit(f"{command}: {ran.stderr}")

def processes():
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not open(f"/proc/{pid}/cgroup").read().strip().endswith(AGENT):
                found.add(open(f"/proc/{pid}/comm").read().strip())
        except OSError:
            continue
    return sorted(found - PASSING)

# What is there before its start has come to an end is not yet what it is made of.
subprocess.run(("systemctl", "is-system-running", "--wait"), stdout=subprocess.DEVNULL)
json.dump({
    "files": files(),
    "users": sorted(f"{user.pw_name}:{user.pw_dir}:{user.pw_shell}" for user in pwd.getpwall()),
    "groups": sorted(f"{group.gr_name}:{','.join(group.gr_mem)}" for group in grp.getgrall()),
    "packages": lines("dpkg-query", "-W", "-f", "${Package} ${Version} ${Status}\n"),
    "units": lines("systemctl", "list-unit-files", "--no-legend", "--plain"),
    "processes": processes(),
}, sys.stdout)
"""


def capture(lab: str, machine: str) -> dict[str, Any]:
    command = [str(_LAB), "exec", "--lab", lab, machine, "--", "python3", "-c", _SCAN]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    state: dict[str, Any] = json.loads(printed)
    return state


def traces(lab: str, machine: str, before: dict[str, Any], within_s: float = 30.0) -> list[str]:
    """What differs from before. A program that was started before the end, such as a health check, may run for some
    seconds more, so a difference counts only if it stays."""
    ends_at = time.monotonic() + within_s
    while (changes := difference(before, capture(lab, machine))) and time.monotonic() < ends_at:
        pass  # a capture takes seconds
    return changes


def difference(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Every trace, in words; empty when the machine is as it was."""
    changes = []
    for path in sorted(before["files"].keys() | after["files"].keys()):
        was, now = before["files"].get(path), after["files"].get(path)
        if was != now:
            changes.append(f"file {path}: {was} -> {now}")
    for kind in ("users", "groups", "packages", "units", "processes"):
        was_set, now_set = set(before[kind]), set(after[kind])
        changes += [f"{kind}: gone {item}" for item in sorted(was_set - now_set)]
        changes += [f"{kind}: new {item}" for item in sorted(now_set - was_set)]
    return changes
