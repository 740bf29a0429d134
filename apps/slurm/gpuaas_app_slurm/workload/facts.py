"""The hardware and system of a machine, read from the machine itself. Used by `config` (files) and `cluster`."""

from typing import Literal

import msgspec
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

Cgroup = Literal["v2", "disabled"]

CONTROLLERS_NEEDED = frozenset({"cpu", "cpuset", "memory"})
TOPOLOGY_KEYS = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")

SCRIPT = r"""
echo "hostname=$(hostname -s)"
echo "cpus=$(nproc --all)"
echo "memory_mb=$(( $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 ))"
for device in /dev/nvidia[0-9]*; do [ ! -c "$device" ] || echo "gpu=$device"; done
echo "cgroup_v1=$(grep -vc '^0::' /proc/1/cgroup || true)"
echo "cgroup_controllers=$(cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null || true)"
if command -v slurmd >/dev/null; then echo "slurmd=$(slurmd -C | head -1)"; fi
"""


class Facts(msgspec.Struct, frozen=True):
    """The facts of one machine. `topology` is empty until slurmd is installed, because `slurmd -C` prints it."""

    hostname: str
    cpus: int
    memory_mb: int
    gpu_devices: tuple[str, ...]
    cgroup: Cgroup
    topology: dict[str, str] = {}


async def read(machine: Machine) -> Facts:
    return parse((await machine.script(SCRIPT)).stdout)


def parse(text: str) -> Facts:
    pairs = [line.split("=", 1) for line in text.splitlines() if "=" in line]
    values = {key: value for key, value in pairs}
    slurmd = dict(pair.split("=", 1) for pair in values.get("slurmd", "").split() if "=" in pair)
    controllers = frozenset(values.get("cgroup_controllers", "").split())
    is_pure = values.get("cgroup_v1") == "0" and controllers >= CONTROLLERS_NEEDED
    return Facts(
        hostname=values["hostname"],
        cpus=int(slurmd.get("CPUs", values["cpus"])),
        memory_mb=int(slurmd.get("RealMemory", values["memory_mb"])),
        gpu_devices=tuple(sorted((value for key, value in pairs if key == "gpu"), key=_device_number)),
        cgroup="v2" if is_pure else "disabled",
        topology={key: slurmd[key] for key in TOPOLOGY_KEYS if key in slurmd},
    )


def node_options(machine: Facts) -> str:
    """Return the options of the node for `slurmd --conf`. The processor counts are those that slurmd itself reports."""
    if not machine.topology:
        raise Permanent(f"machine {machine.hostname}: `slurmd -C` printed no processor counts", fix="slurmd -C")
    options = [f"{key}={value}" for key, value in machine.topology.items()]
    options.append(f"RealMemory={schedulable_memory_mb(machine.memory_mb)}")
    if machine.gpu_devices:
        options.append(f"Gres=gpu:{len(machine.gpu_devices)}")
    return " ".join(options)


def schedulable_memory_mb(total_mb: int) -> int:
    """Return the memory for jobs, which is less than the total: Slurm sets a node DOWN if it later has less memory."""
    return total_mb - max(min(512, total_mb // 8), total_mb // 50)


def _device_number(device: str) -> tuple[int, str]:
    digits = device.removeprefix("/dev/nvidia")
    return (int(digits) if digits.isdigit() else 1 << 30), device
