"""Decide the names, addresses and records of a lab's machines. Pure; used by `lab.py` and `machine.py`."""

import hashlib
import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuaas_lab import errors

NODE_PREFIX = "gpu-"
HOST_NUMBER_FIRST = 11
HOST_NUMBER_LAST = 250
SECOND_OCTETS = range(83, 100)
HOSTS_BEGIN = "# gpuaas-lab begin"
HOSTS_END = "# gpuaas-lab end"
SETTINGS = ("GPUAAS_LAB", "GPUAAS_LAB_STATE")
"""Environment variables that give flags their defaults."""

_LAB_NAME = re.compile(r"[a-z][a-z0-9]{0,15}")
_MACHINE_NAME = re.compile(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class MachineRecord:
    """The record of one machine; it is kept as long as the machine's disk."""

    name: str
    host_number: int
    gpus: int
    image: str


@dataclass(frozen=True)
class LabRecord:
    """The content of lab.json."""

    name: str
    subnet: str
    packages: str | None = None
    machines: Mapping[str, MachineRecord] = field(default_factory=dict)
    toolchain: bool = False
    """New machines get the image with compilers, MPI and pip."""

    def address(self, machine: MachineRecord) -> str:
        return str(ipaddress.IPv4Network(self.subnet)[machine.host_number])

    @property
    def gateway(self) -> str:
        return str(ipaddress.IPv4Network(self.subnet)[1])


def as_root(python: str, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line that runs this program again through sudo, with only the environment of the lab.

    Root must not import modules from the working folder, or write bytecode files that the user cannot delete.
    """
    settings = [f"{name}={environment[name]}" for name in SETTINGS if name in environment]
    return ["sudo", "-n", "env", *settings, python, "-I", "-B", "-m", "gpuaas_lab.main", *arguments]


def check_lab_name(name: str) -> str:
    # Without hyphens, the lab in "gpuaas-<lab>-<machine>" is unambiguous.
    if not _LAB_NAME.fullmatch(name):
        raise errors.UsageError(
            f"lab name '{name}' is not valid: use a lower-case letter, then up to 15 letters or digits"
        )
    return name


def check_machine_name(name: str) -> str:
    if not _MACHINE_NAME.fullmatch(name):
        raise errors.UsageError(f"machine name '{name}' is not valid: use 1-32 lower-case letters, digits, hyphens")
    return name


def bridge_name(lab: str) -> str:
    return f"gpl{_short_hash(lab)}"


def veth_prefix(lab: str) -> str:
    return f"gpv{_short_hash(lab)}-"


def veth_name(lab: str, host_number: int) -> str:
    return f"{veth_prefix(lab)}{host_number}"


def unit_prefix(lab: str) -> str:
    """Return the prefix of the names of a lab's network namespaces and nspawn machines."""
    return f"gpuaas-{lab}-"


def unit_name(lab: str, machine: str) -> str:
    return f"{unit_prefix(lab)}{machine}"


def choose_subnet(lab: str, used: Iterable[str]) -> str:
    """Return a free private /24 subnet. The search starts at a place that depends on the lab's name."""
    taken = _ipv4_networks(used)
    start = int(_short_hash(lab), 16) % len(SECOND_OCTETS)
    seconds = [*SECOND_OCTETS[start:], *SECOND_OCTETS[:start]]
    for third in range(256):
        for second in seconds:
            subnet = ipaddress.IPv4Network(f"10.{second}.{third}.0/24")
            if not any(subnet.overlaps(other) for other in taken):
                return str(subnet)
    raise errors.LabError("this host has no free /24 subnet between 10.83.0.0 and 10.99.255.0", "ip -4 route")


def is_taken(subnet: str, used: Iterable[str]) -> bool:
    """Return whether the host uses addresses in this subnet. A route to a larger network is no conflict."""
    return any(network.subnet_of(ipaddress.IPv4Network(subnet)) for network in _ipv4_networks(used))


def node_names(count: int) -> list[str]:
    return [f"{NODE_PREFIX}{number}" for number in range(1, count + 1)]


def next_node_names(existing: Collection[str], count: int) -> list[str]:
    """Return names for `count` new nodes, with the lowest free numbers."""
    free = (name for name in node_names(len(existing) + count) if name not in existing)
    return [name for name, _ in zip(free, range(count), strict=False)]


def add_machines(lab: LabRecord, names: Iterable[str], *, gpus: int, image: str) -> LabRecord:
    """Return the lab with these machines added; existing ones keep their address, GPUs and image."""
    machines = dict(lab.machines)
    for name in names:
        if name not in machines:
            number = _host_number(name, {machine.host_number for machine in machines.values()})
            machines[name] = MachineRecord(check_machine_name(name), number, gpus, image)
    return replace(lab, machines=machines)


def remove_machines(lab: LabRecord, names: Collection[str]) -> LabRecord:
    kept = {name: machine for name, machine in lab.machines.items() if name not in names}
    return replace(lab, machines=kept)


def set_packages(lab: LabRecord, packages: str) -> LabRecord:
    return replace(lab, packages=packages)


def machines_without(lab: LabRecord, image: str) -> list[str]:
    """Return the machines whose disk is from another image."""
    return [machine.name for machine in lab.machines.values() if machine.image != image]


def to_json(lab: LabRecord) -> dict[str, Any]:
    machines = {
        machine.name: {"host_number": machine.host_number, "gpus": machine.gpus, "image": machine.image}
        for machine in lab.machines.values()
    }
    settings = {"name": lab.name, "subnet": lab.subnet, "packages": lab.packages, "toolchain": lab.toolchain}
    return {**settings, "machines": machines}


def from_json(data: Mapping[str, Any]) -> LabRecord:
    machines = {
        name: MachineRecord(name, int(entry["host_number"]), int(entry["gpus"]), str(entry["image"]))
        for name, entry in data["machines"].items()
    }
    toolchain = bool(data.get("toolchain", False))  # absent in records of earlier releases
    return LabRecord(str(data["name"]), str(data["subnet"]), data["packages"], machines, toolchain)


def gpu_devices(count: int) -> list[tuple[int, int]]:
    """Return different character device numbers for the fake GPUs, which no job needs and which are no real hardware.

    1:7 is /dev/full and 10:183 is the random number generator; most hosts can open them. 60:n is reserved for local
    use, so no driver serves it.
    """
    known = [(1, 7), (10, 183)]
    return [known[index] if index < len(known) else (60, index) for index in range(count)]


def hosts_text(existing: str, lab: LabRecord, own_name: str) -> str:
    """Return /etc/hosts with the lab's block replaced and every other line kept."""
    kept = re.sub(rf"(?ms)^{re.escape(HOSTS_BEGIN)}$.*?^{re.escape(HOSTS_END)}$\n?", "", existing)
    lines = [HOSTS_BEGIN, "127.0.0.1 localhost", f"{lab.gateway} gateway"]
    ordered = sorted(lab.machines.values(), key=lambda machine: (machine.name != own_name, machine.host_number))
    lines += [f"{lab.address(machine)} {machine.name}" for machine in ordered]
    return kept + "\n".join([*lines, HOSTS_END]) + "\n"


def parse_package_list(text: str) -> list[str]:
    """Return the package names of a list, sorted and without duplicates. One per line; `#` starts a comment."""
    lines = (line.split("#", 1)[0].strip() for line in text.splitlines())
    names = sorted({line for line in lines if line})
    wrong = [name for name in names if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name)]
    if wrong:
        raise errors.UsageError(f"'{wrong[0]}' is not a Debian package name (write one name per line, # for comments)")
    return names


def may_renew_agent(*, present: str, wanted: str, installed: str) -> bool:
    """Return whether the lab may replace the agent with this digest. It must not undo an upgrade by the platform."""
    return not installed or present in ("", wanted, installed)


def counted(machines: int) -> str:
    return "1 machine" if machines == 1 else f"{machines} machines"


def recipe_key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _ipv4_networks(texts: Iterable[str]) -> list[ipaddress.IPv4Network]:
    return [network for network in map(ipaddress.ip_network, texts) if isinstance(network, ipaddress.IPv4Network)]


def _host_number(name: str, taken: Collection[int]) -> int:
    number = name.removeprefix(NODE_PREFIX)
    preferred = HOST_NUMBER_FIRST - 1 + int(number) if number.isdigit() else HOST_NUMBER_FIRST
    numbers: list[int] = [preferred, *range(HOST_NUMBER_FIRST, HOST_NUMBER_LAST + 1)]
    for candidate in numbers:
        if HOST_NUMBER_FIRST <= candidate <= HOST_NUMBER_LAST and candidate not in taken:
            return candidate
    raise errors.LabError(f"the lab is full: {len(taken)} machines", "gpuaas-lab remove NAME")


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:7]
