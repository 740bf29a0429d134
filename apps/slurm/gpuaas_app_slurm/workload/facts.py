"""The hardware and system of a machine, read from the machine itself. Used by `config` (files) and `cluster`."""

import re
from typing import Literal

import msgspec
from gpuaas_sdk.failures import Permanent
from gpuaas_sdk.machine import Machine

from gpuaas_app_slurm.workload.reporter_program import TIME_SERVICES

Cgroup = Literal["v2", "disabled"]

CONTROLLERS_NEEDED = frozenset({"cpu", "cpuset", "memory"})
WORKER_FEATURE = "worker"
"""The partition holds the nodes with this feature."""
TOPOLOGY_KEYS = ("CPUs", "Boards", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore")

SCRIPT = r"""
echo "hostname=$(hostname -s)"
echo "cpus=$(nproc --all)"
echo "memory_mb=$(( $(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) / 1024 ))"
for device in /dev/nvidia[0-9]*; do [ ! -c "$device" ] || echo "gpu=$device"; done
echo "cgroup_v1=$(grep -vc '^0::' /proc/1/cgroup || true)"
echo "cgroup_controllers=$(cat /sys/fs/cgroup/cgroup.controllers 2>/dev/null || true)"
if command -v python3 >/dev/null; then python3 -I - <<'PYTHON' || true
import glob, json, re
try:
    for gpu in json.load(open("/etc/gpuaas/facts.d/gpus.json"))["gpus"]:
        print(f"gpu_type={gpu['device']} {gpu['type']}")
except OSError:
    for path in glob.glob("/proc/driver/nvidia/gpus/*/information"):
        fields = dict(re.findall(r"^([^:\n]+):[ \t]*(.*)$", open(path).read(), re.M))
        print(f"gpu_type=/dev/nvidia{fields['Device Minor']} {fields['Model']}")
try:
    for folder in json.load(open("/etc/gpuaas/facts.d/shared.json"))["mounts"]:
        print(f"shared={folder['path']}")
except OSError:
    pass
PYTHON
fi
if command -v slurmd >/dev/null; then echo "slurmd=$(slurmd -C | head -1)"; fi
"""

TIME_SERVICE = rf"""
names=({" ".join(TIME_SERVICES)})
states=($(systemctl is-active "${{names[@]}}" || true))
for at in "${{!names[@]}}"; do
  [ "${{states[at]:-}}" != active ] || echo "${{names[at]}}"
done
! systemd-detect-virt -cq || echo host
"""


class Facts(msgspec.Struct, frozen=True):
    """The facts of one machine. `topology` is empty until slurmd is installed, because `slurmd -C` prints it."""

    hostname: str
    cpus: int
    memory_mb: int
    gpu_devices: tuple[str, ...]
    cgroup: Cgroup
    topology: dict[str, str] = {}
    gpu_types: dict[str, str] = {}
    """Device file -> type, as users write it in `--gres=gpu:TYPE:1`."""
    shared_folders: tuple[str, ...] = ()
    """Folders that operators declare as shared with other machines."""

    def gpu_type(self, device: str) -> str:
        """Return the type of a GPU. Slurm needs all GPUs of a node with a type, or none."""
        return self.gpu_types[device] if all(other in self.gpu_types for other in self.gpu_devices) else ""


READ_S = 60
"""Time limit of scripts that only read."""


async def read(machine: Machine) -> Facts:
    return parse((await machine.script(SCRIPT, timeout_s=READ_S)).stdout)


def time_service(printed: str) -> str:
    """Return the service that keeps the clock right, from the output of `TIME_SERVICE`; `host` in a container; empty if
    there is none."""
    names = printed.split()
    return names[0] if names else ""


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
        gpu_types=dict(_typed(value) for key, value in pairs if key == "gpu_type" and _typed(value)[1]),
        shared_folders=tuple(value for key, value in pairs if key == "shared"),
        topology={key: slurmd[key] for key in TOPOLOGY_KEYS if key in slurmd},
    )


def node_options(machine: Facts) -> str:
    """Return the options of a worker for `slurmd --conf`. The processor counts are those that slurmd itself reports."""
    options = [*_size(machine), f"Feature={WORKER_FEATURE}"]
    if machine.gpu_devices:
        kinds = [machine.gpu_type(device) for device in machine.gpu_devices]
        counts = [":".join(filter(None, ("gpu", kind, str(kinds.count(kind))))) for kind in dict.fromkeys(kinds)]
        options.append(f"Gres={','.join(counts)}")
    return " ".join(options)


def login_options(machine: Facts) -> str:
    """Return the options of a login machine for `slurmd --conf`: no feature of a worker, so it is in no partition."""
    return " ".join([*_size(machine), "Feature=login"])


def sanitised(gpu_type: str) -> str:
    """Return the name of a GPU model as Slurm's own detection of NVIDIA GPUs writes it, such as nvidia_h100_80gb."""
    name = re.sub(r"[^a-z0-9_.-]+", "_", gpu_type.strip().lower()).strip("_")
    return f"gpu_{name}" if name[:1].isdigit() else name


def _typed(text: str) -> tuple[str, str]:
    device, _, kind = text.partition(" ")
    return device, sanitised(kind)


def _size(machine: Facts) -> list[str]:
    if not machine.topology:
        raise Permanent(f"machine {machine.hostname}: `slurmd -C` printed no processor counts", fix="slurmd -C")
    options = [f"{key}={value}" for key, value in machine.topology.items()]
    return [*options, f"RealMemory={schedulable_memory_mb(machine.memory_mb)}"]


def schedulable_memory_mb(total_mb: int) -> int:
    """Return the memory for jobs, which is less than the total: Slurm sets a node DOWN if it later has less memory."""
    return total_mb - max(min(512, total_mb // 8), total_mb // 50)


def _device_number(device: str) -> tuple[int, str]:
    digits = device.removeprefix("/dev/nvidia")
    return (int(digits) if digits.isdigit() else 1 << 30), device
