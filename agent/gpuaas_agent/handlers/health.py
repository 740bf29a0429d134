"""`host.health`: named checks of this node, each with a message for the operator."""

from __future__ import annotations

import os
import shutil
import socket
from pathlib import Path
from typing import Any

from gpuaas_agent.host import facts

DISK_FREE_SHARE_MIN = 0.05
MEMORY_FREE_SHARE_MIN = 0.05
CONNECT_TIMEOUT_S = 10.0
"""Long, because sshd starts a process for each connection before it answers, which is slow on a busy node."""


def report() -> dict[str, Any]:
    """Run every check and return the results; `ok` is true if all checks passed."""
    disk = shutil.disk_usage("/")
    memory = meminfo(Path("/proc/meminfo").read_text())
    devices = [str(gpu["device"]) for gpu in facts.gpus(facts.DECLARED_GPUS, facts.NVIDIA_GPUS)]
    checks = [
        disk_has_room(disk.free, disk.total),
        memory_is_left(memory.get("MemAvailable", 0), memory.get("MemTotal", 1)),
        sshd_answers(("127.0.0.1", facts.SSH_PORT)),
        gpu_devices_are_there(devices),
    ]
    return {
        "ok": all(check["ok"] for check in checks),
        "checks": checks,
        "disk_free_gb": disk.free // 10**9,
        "memory_available_mb": memory.get("MemAvailable", 0) // 1024,
        "load_1m": round(os.getloadavg()[0], 2),
        "uptime_s": int(float(Path("/proc/uptime").read_text().split()[0])),
    }


def meminfo(text: str) -> dict[str, int]:
    """Return kilobytes by name, from the text of /proc/meminfo."""
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name: int(value.split()[0]) for name, value in pairs}


def disk_has_room(free: int, total: int) -> dict[str, Any]:
    message = f"{free // 10**9} of {total // 10**9} GB are free on /"
    return _check("disk has room", free >= total * DISK_FREE_SHARE_MIN, message)


def memory_is_left(available: int, total: int) -> dict[str, Any]:
    message = f"{available // 1024} of {total // 1024} MB are available"
    return _check("memory is left", available >= total * MEMORY_FREE_SHARE_MIN, message)


def sshd_answers(address: tuple[str, int]) -> dict[str, Any]:
    name = "sshd answers"
    try:
        with socket.create_connection(address, timeout=CONNECT_TIMEOUT_S) as connection:
            if greets_as_sshd(connection):
                return _check(name, True, f"on port {address[1]}")
            reason = "a program other than sshd answers"
    except OSError as error:
        reason = error.strerror or str(error)
    return _check(name, False, f"port {address[1]}: {reason}. Check on the node: systemctl status ssh")


def greets_as_sshd(connection: socket.socket) -> bool:
    return connection.recv(8) == b"SSH-2.0-"


def gpu_devices_are_there(devices: list[str]) -> dict[str, Any]:
    missing = [device for device in devices if not Path(device).exists()]
    message = f"missing: {', '.join(missing)}" if missing else f"{len(devices)} of {len(devices)}"
    return _check("GPU devices are there", not missing, message)


def _check(name: str, ok: bool, message: str) -> dict[str, Any]:
    return {"name": name, "ok": ok, "message": message}
