#!/usr/bin/env python3
"""Report the health of this machine of a Slurm cluster, every few seconds.

Runs as a service on each machine of a cluster, with the standard library only. The report is a file that every local
user can read; a machine with slurmd also stores it in the `extra` field of its node in Slurm, so that one question to
slurmctld answers for all nodes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any

REPORT = "/run/gpuaas-slurm/health.json"
FILES = "/etc/slurm/gpuaas-files"
PROGRAMS = ("/usr/local/lib/gpuaas-slurm/health.py", "/etc/slurm/gpuaas/health-check")
"""The programs of the app that run on each machine."""
KEYS = ("/etc/slurm/slurm.key", "/etc/munge/munge.key")
KEY_SET = "/etc/slurm/slurm.jwks"
MOVE = "/var/lib/gpuaas-app/slurm-move/begun"
UPGRADE = "/var/lib/gpuaas-app/slurm-backup"
ROTATION_S = 900.0
"""A key set that has not changed for this long was left by a replacement of the key that did not end."""
TIME_SERVICES = ("chrony", "chronyd", "systemd-timesyncd", "ntpsec", "ntpd", "ntp")
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system")
OPTIONS = {"slurmrestd": "/etc/systemd/system/slurmrestd.service.d/gpuaas.conf"}
"""Units that only some clusters have, and the file that the app writes for each."""
DISKS = ("/", "/var", "/var/lib/slurm", "/var/lib/mysql", "/tmp")
"""Folders whose file systems are measured. Of several on the same file system, the first is named."""
EVERY_S = 3.0
STUCK_S = 10.0
"""A unit that has been starting for this long does not start."""
PACKAGE: dict[str, Any] = {}


def main() -> None:
    node_name, units = sys.argv[1], sys.argv[2:]
    os.makedirs(os.path.dirname(REPORT), mode=0o755, exist_ok=True)
    while True:
        report = collect(units)
        write(report)
        if node_name:
            store(node_name, report)
        time.sleep(EVERY_S)


def collect(units: list[str]) -> dict[str, Any]:
    return {
        "units": unit_states(units),
        "full": full_disks(),
        "drift": changed_files(),
        "programs": programs(listed_files() or []),
        "key": key_digest(),
        "rotation": rotation(),
        "move": move(),
        "upgrade": upgrade(),
        "package": package_version(),
        "time_service": time_service(),
        # Last, because the reader compares it with its own clock: what comes before takes seconds on a busy machine.
        "t": int(time.time()),
        "up": int(time.clock_gettime(time.CLOCK_BOOTTIME)),
    }


def unit_states(units: list[str]) -> dict[str, Any]:
    """Return unit -> [active state, number of automatic restarts]."""
    units = [*units, *(unit for unit, path in OPTIONS.items() if os.path.exists(path))]
    ran = run(["systemctl", "show", "-p", "Id,ActiveState,SubState,NRestarts,StateChangeTimestampMonotonic", *units])
    states: dict[str, Any] = {}
    for block in ran.split("\n\n"):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        if fields:
            state = fields["ActiveState"]
            if fields.get("SubState") == "auto-restart":
                state = "restarting"
            elif state == "activating" and since_change_s(fields) > STUCK_S:
                state = "stuck"
            states[fields["Id"].removesuffix(".service")] = [state, int(fields.get("NRestarts") or 0)]
    return states


def since_change_s(fields: dict[str, str]) -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC) - int(fields.get("StateChangeTimestampMonotonic") or 0) / 1e6


def full_disks() -> dict[str, Any]:
    """Return folder -> percent of free space, of file systems that are nearly full."""
    full: dict[str, Any] = {}
    seen = set()
    for folder in DISKS:
        try:
            disk, device = os.statvfs(folder), os.stat(folder).st_dev
        except OSError:
            continue
        if device in seen or not disk.f_blocks:
            continue
        seen.add(device)
        free = min(100 * disk.f_bavail // disk.f_blocks, 100 * disk.f_favail // disk.f_files if disk.f_files else 100)
        if free < 5:
            full[folder] = free
    return full


def changed_files() -> list[Any]:
    """Return the files of the app whose content is no longer the one that the app wrote."""
    listed = listed_files()
    return [FILES] if listed is None else [path for digest, path in listed if file_digest(path) != digest]


def programs(listed: list[tuple[str, str]]) -> str:
    """Return a few digits that differ between releases of the app with other programs. They are of what the app wrote:
    an edit of someone is in `drift`."""
    digests = [digest for name in PROGRAMS for digest, path in listed if path == name]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:8] if digests else ""


def listed_files() -> list[tuple[str, str]] | None:
    try:
        with open(FILES) as file:
            return parsed(file.read())
    except OSError:
        return None


def parsed(text: str) -> list[tuple[str, str]]:
    """Return digest and path of each file of a list that sha256sum printed."""
    return [(digest, path) for digest, _, path in (line.partition("  ") for line in text.splitlines())]


def key_digest() -> str:
    """Return a few digits that tell two keys apart and tell nothing about either."""
    return next((digest[:8] for digest in map(file_digest, KEYS) if digest), "")


def rotation() -> str:
    """Return whether the key of the cluster is being replaced: `runs`, or `left` if that did not end; empty if not."""
    try:
        changed_at = os.stat(KEY_SET).st_mtime
    except OSError:
        return ""
    return "left" if time.time() - changed_at > ROTATION_S else "runs"


def move() -> dict[str, Any]:
    """Return to which machine the controller moves from here, and by which operation; empty if no move has begun."""
    try:
        with open(MOVE) as file:
            begun = json.load(file)
            return {name: begun[name] for name in ("node_name", "operation_id")}
    except OSError:
        return {}
    except (ValueError, KeyError):
        return {"node_name": "another machine", "operation_id": "ID"}


def upgrade() -> dict[str, Any]:
    """Return the last upgrade of this controller machine, and from which version; empty if it was returned from."""
    if os.path.exists(f"{UPGRADE}/returned") or not os.path.exists(f"{UPGRADE}/done"):
        return {}
    try:
        with open(f"{UPGRADE}/before.json") as file:
            noted = json.load(file)
            return {name: noted[name] for name in ("operation_id", "package_version")}
    except (OSError, ValueError, KeyError):
        return {}


def package_version() -> str:
    """Return the version of the installed Slurm package. It is read again only if packages have changed."""
    changed_at = os.stat("/var/lib/dpkg/status").st_mtime
    if PACKAGE.get("changed_at") != changed_at:
        argv = ["dpkg-query", "-W", "-f", "${Version}", "slurm-wlm-basic-plugins"]
        try:
            PACKAGE["version"] = run(argv)
        except subprocess.SubprocessError:
            PACKAGE["version"] = ""
        PACKAGE["changed_at"] = changed_at
    return str(PACKAGE["version"])


def time_service() -> str:
    """Return the unit of the service that sets the clock of this machine; empty if none is installed."""
    files = ((name, f"{folder}/{name}.service") for name in TIME_SERVICES for folder in UNIT_FOLDERS)
    return next((name for name, path in files if os.path.exists(path)), "")


def file_digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()
    except OSError:
        return ""


def write(report: dict[str, Any]) -> None:
    try:
        with open(REPORT + ".new", "w") as file:
            json.dump(report, file)
        os.replace(REPORT + ".new", REPORT)
    except OSError as error:
        sys.stderr.write(f"cannot write {REPORT}: {error}\n")


def store(node_name: str, report: dict[str, Any]) -> None:
    """Store the report in Slurm. If Slurm does not answer, the watcher sees that the report is old."""
    text = json.dumps(report, separators=(",", ":"))
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        run(["scontrol", "update", f"nodename={node_name}", f"extra={text}"])


def run(argv: list[str]) -> str:
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=10).stdout


if __name__ == "__main__":
    main()
