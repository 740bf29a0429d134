"""Facts about this host, read again for every heartbeat, for enrolment and for the `host.facts` task."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import socket
from pathlib import Path
from typing import Any

from gpuaas_agent import commands, files, log

DECLARED_GPUS = Path("/etc/gpuaas/facts.d/gpus.json")
NVIDIA_GPUS = Path("/proc/driver/nvidia/gpus")
DECLARED_SHARED = Path("/etc/gpuaas/facts.d/shared.json")
"""For file systems that the kernel does not show as shared: `{"mounts": [{"path": "/home/people"}]}`."""
MOUNTS = Path("/proc/self/mountinfo")
_SHARED_KINDS = frozenset(
    {
        "lustre",
        "gpfs",
        "beegfs",
        "ceph",
        "cifs",
        "smb3",
        "9p",
        "virtiofs",
        "afs",
        "ocfs2",
        "gfs2",
        "wekafs",
        "panfs",
        "pvfs2",
        "orangefs",
        "glusterfs",
        "daos",
        "quobyte",
        "fuse.dfuse",
        "fuse.juicefs",
        "fuse.weka",
    }
)
"""Kinds of file systems that several machines mount at the same time."""
SHARED_MOUNTS_MAX = 64
SSH_PORT = 22
ADDRESSES_MAX = 64
"""A machine that runs containers can have thousands of addresses. The platform accepts 256."""
HOST_KEYS = tuple(Path(f"/etc/ssh/ssh_host_{kind}_key.pub") for kind in ("ed25519", "ecdsa", "rsa"))


def collect() -> dict[str, Any]:
    return {
        "cpus": os.cpu_count() or 1,
        "memory_mb": memory_mb(Path("/proc/meminfo").read_text()),
        "gpus": gpus(DECLARED_GPUS, NVIDIA_GPUS),
        "os": pretty_name((files.read(Path("/etc/os-release")) or b"").decode()),
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "disk_gb": shutil.disk_usage("/").total // 10**9,
        "addresses": _addresses(),
        "hostname": socket.gethostname(),
        "ssh_port": SSH_PORT,
        "shared_mounts": shared_mounts(),
    }


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def ssh_host_public_key(candidates: tuple[Path, ...] = HOST_KEYS) -> str:
    """Return type and key without the comment, Ed25519 first; empty if sshd has no host key yet."""
    for path in candidates:
        content = files.read(path)
        if content:
            return " ".join(content.decode().split()[:2])
    return ""


def memory_mb(meminfo: str) -> int:
    total = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(total.group(1)) // 1024 if total else 0


def pretty_name(os_release: str) -> str:
    name = re.search(r'^PRETTY_NAME="?([^"\n]*)"?', os_release, re.MULTILINE)
    return name.group(1) if name else "unknown"


def gpus(declared: Path, nvidia: Path) -> list[dict[str, Any]]:
    """Return the GPUs that a file declares, or else those of the NVIDIA driver. An unreadable list counts as no GPU."""
    try:
        content = files.read(declared)
        if content is not None:
            return [_declared_gpu(entry) for entry in json.loads(content)["gpus"]]
        return _driver_gpus(nvidia)
    except (OSError, ValueError, TypeError, KeyError) as error:
        log.error("facts.gpus_unreadable", file=str(declared), error=repr(error))
        return []


def shared_mounts(declared: Path = DECLARED_SHARED, mounts: Path = MOUNTS) -> list[dict[str, str]]:
    """Return the network and cluster file systems that are mounted, and those that a file declares as shared."""
    shared = {entry["path"]: entry for entry in network_mounts(mounts.read_text(errors="replace"))}
    try:
        content = files.read(declared)
        for entry in json.loads(content)["mounts"] if content is not None else ():
            shared[str(entry["path"])] = {
                name: str(entry.get(name, "declared")) for name in ("path", "source", "fstype")
            }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.error("facts.shared_mounts_unreadable", file=str(declared), error=repr(error))
    return [entry for _, entry in sorted(shared.items())][:SHARED_MOUNTS_MAX]


def network_mounts(mountinfo: str) -> list[dict[str, str]]:
    """Return the mounts of network and cluster file systems, from the text of /proc/self/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        fields, more = before.split(" "), after.split(" ")
        if len(fields) > 4 and len(more) > 1 and _is_shared_kind(more[0]):
            mounts.append({"path": _unescaped(fields[4]), "source": _unescaped(more[1]), "fstype": more[0]})
    return mounts


def is_shared(path: Path, mounts: list[dict[str, str]]) -> bool:
    """Return whether the path is on one of these mounts."""
    places = [Path(entry["path"]) for entry in mounts]
    return any(place == path or place in path.parents for place in places)


def _is_shared_kind(fstype: str) -> bool:
    return fstype in _SHARED_KINDS or fstype.startswith(("nfs", "fuse.gluster", "fuse.ceph", "fuse.sshfs", "fuse.s3"))


def _unescaped(field: str) -> str:
    """Return a field of mountinfo with its octal escapes decoded: blanks, tabs, newlines and backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


def global_addresses(ip_json: str) -> list[str]:
    links = json.loads(ip_json)
    entries = [entry for link in links for entry in link.get("addr_info", ()) if entry.get("scope") == "global"]
    return [str(entry["local"]) for entry in entries if "local" in entry]


def _declared_gpu(entry: dict[str, Any]) -> dict[str, Any]:
    return {"index": int(entry["index"]), "type": str(entry["type"]), "device": str(entry["device"])}


def _driver_gpus(nvidia: Path) -> list[dict[str, Any]]:
    if not nvidia.is_dir():
        return []
    cards = [_driver_gpu((card / "information").read_text()) for card in nvidia.iterdir()]
    return sorted(cards, key=lambda card: int(card["index"]))


def _driver_gpu(information: str) -> dict[str, Any]:
    fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*?)[ \t]*$", information, re.MULTILINE))
    minor = int(fields["Device Minor"])
    return {"index": minor, "type": fields["Model"], "device": f"/dev/nvidia{minor}"}


def _addresses() -> list[str]:
    try:
        return global_addresses(commands.run(["ip", "-j", "addr"], timeout_s=10).decode())[:ADDRESSES_MAX]
    except (commands.CommandFailed, ValueError) as error:
        log.error("facts.addresses_unreadable", error=str(error))
        return []
