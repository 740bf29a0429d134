"""The bridge, network namespaces and links of a lab. Called by `lab.py`; links of other labs are never changed."""

import hashlib
import json
import shutil
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuaas_lab import errors, host, plan, shell

NAMESPACE_FOLDER = Path("/run/netns")


@contextmanager
def locked() -> Iterator[None]:
    """Hold the lock for the subnets and the folder of namespaces, which all labs of the host share."""
    # Lab names have no hyphen, so no lab has a lock with this name.
    with shell.locked(host.LOCKS / "host-network", "the network"):
        yield


def create_bridge(lab: plan.LabRecord) -> None:
    """Make the bridge with the gateway address, or complete it after an interrupted run."""
    bridge = plan.bridge_name(lab.name)
    if not _link_exists(bridge):
        _require_free(lab)
        # Without a fixed hardware address, a bridge uses that of one of its ports, which change with the machines.
        hardware_address = _hardware_address(lab.name, 1)
        shell.run(["ip", "link", "add", bridge, "address", hardware_address, "type", "bridge", "forward_delay", "0"])
    _block_forwarding(bridge)
    shell.run(["ip", "address", "replace", f"{lab.gateway}/24", "dev", bridge])
    shell.run(["ip", "link", "set", bridge, "up"])
    if _bridges_are_filtered() and not _is_allowed(bridge):
        shell.run(["iptables", "-w", "-I", *_allow_rule(bridge)])


def delete_bridge(lab: str) -> None:
    bridge = plan.bridge_name(lab)
    while _bridges_are_filtered() and _is_allowed(bridge):
        shell.run(["iptables", "-w", "-D", *_allow_rule(bridge)])
    _delete_link(bridge)


def connect(lab: plan.LabRecord, machine: plan.MachineRecord) -> None:
    """Make the network namespace, link and address of a stopped machine. Old ones are removed first."""
    disconnect(lab.name, machine.name, machine.host_number)
    namespace = plan.unit_name(lab.name, machine.name)
    link = plan.veth_name(lab.name, machine.host_number)
    # The same hardware address at each start, so that neighbour entries stay valid after a power cut.
    hardware_address = _hardware_address(lab.name, machine.host_number)
    shell.run(["ip", "netns", "add", namespace])
    peer = ["peer", "name", "eth0", "address", hardware_address, "netns", namespace]
    shell.run(["ip", "link", "add", link, "type", "veth", *peer])
    shell.run(["ip", "link", "set", link, "master", plan.bridge_name(lab.name), "up"])
    commands = f"""link set lo up
link set eth0 up
address add {lab.address(machine)}/24 dev eth0
route add default via {lab.gateway}
"""
    shell.run(["ip", "-n", namespace, "-batch", "-"], stdin=commands.encode())


def disconnect(lab: str, machine: str, host_number: int | None) -> None:
    # Delete the link first, because the kernel deletes it only later if the namespace is deleted first.
    if host_number is not None:
        _delete_link(plan.veth_name(lab, host_number))
    _delete_namespace(plan.unit_name(lab, machine))


def cut(lab: str, host_number: int) -> None:
    shell.run(["ip", "link", "set", plan.veth_name(lab, host_number), "nomaster", "down"])


def heal(lab: str, host_number: int) -> None:
    shell.run(["ip", "link", "set", plan.veth_name(lab, host_number), "master", plan.bridge_name(lab), "up"])


def links_cut(lab: str) -> set[str]:
    """Return the links of this lab that are not attached to the bridge."""
    links = _ip_json(["link", "show"])
    return {link["ifname"] for link in links if _is_link_of(lab, link["ifname"]) and "master" not in link}


def delete_leftovers(lab: str) -> None:
    """Delete the remaining links and namespaces of the lab, which belong to no recorded machine."""
    for link in link_names():
        if _is_link_of(lab, link):
            _delete_link(link)
    for name in machines_with_namespace(lab):
        _delete_namespace(plan.unit_name(lab, name))


def machines_with_namespace(lab: str) -> list[str]:
    prefix = plan.unit_prefix(lab)
    if not NAMESPACE_FOLDER.is_dir():
        return []
    return [entry.name.removeprefix(prefix) for entry in NAMESPACE_FOLDER.iterdir() if entry.name.startswith(prefix)]


def link_names() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def release_namespace_folder() -> None:
    """Unmount the folder of namespaces, which `ip netns` mounts at its first use, if it is empty."""
    if NAMESPACE_FOLDER.is_dir() and not any(NAMESPACE_FOLDER.iterdir()):
        host.unmount(host.mounts_under(NAMESPACE_FOLDER))


def used_subnets() -> list[str]:
    """Return every IPv4 network in which the host has an address or to which it has a route."""
    routes = [route["dst"] for route in _ip_json(["-4", "route", "show", "table", "all"]) if route["dst"] != "default"]
    addresses = [
        f"{address['local']}/32"
        for link in _ip_json(["-4", "address", "show"])
        for address in link.get("addr_info", [])
        if "local" in address
    ]
    return _valid_networks([*routes, *addresses])


def _require_free(lab: plan.LabRecord) -> None:
    """Fail if another lab or a tunnel has begun to use the subnet of this lab since the lab was made."""
    if plan.is_taken(lab.subnet, used_subnets()):
        raise errors.LabError(
            f"the subnet {lab.subnet} of lab {lab.name} is in use on this host (ip -4 route show root {lab.subnet})",
            f"free the subnet, or delete the lab's disks to get another one: gpuaas-lab down --purge --lab {lab.name}",
        )


def _block_forwarding(bridge: str) -> None:
    """Do not forward packets from machines, even if the host forwards other packets."""
    Path(f"/proc/sys/net/ipv4/conf/{bridge}/forwarding").write_text("0")
    version_six = Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6")
    if version_six.exists():
        version_six.write_text("1")


def _bridges_are_filtered() -> bool:
    """Return whether iptables filters the traffic of bridges. Container tools then drop that of other bridges."""
    setting = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
    return setting.exists() and setting.read_text().strip() == "1" and shutil.which("iptables") is not None


def _is_allowed(bridge: str) -> bool:
    return shell.succeeds(["iptables", "-w", "-C", *_allow_rule(bridge)])


def _allow_rule(bridge: str) -> list[str]:
    return ["FORWARD", "-i", bridge, "-o", bridge, "-j", "ACCEPT"]


def _valid_networks(candidates: Iterable[str]) -> list[str]:
    networks = {candidate for candidate in candidates if candidate[0].isdigit()}
    return sorted(networks - {"0.0.0.0", "0.0.0.0/0"})


def _ip_json(arguments: list[str]) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(shell.run(["ip", "-json", *arguments]) or "[]")
    # ip prints an empty object for an entry that it cannot describe.
    return [entry for entry in answer if entry]


def _is_link_of(lab: str, link: str) -> bool:
    return link.startswith(plan.veth_prefix(lab))


def _link_exists(link: str) -> bool:
    return link in link_names()


def _delete_link(link: str) -> None:
    # The kernel itself deletes a link, at any time, after the namespace at its other end was deleted.
    _delete(["ip", "link", "delete", link], lambda: _link_exists(link))


def _delete_namespace(namespace: str) -> None:
    _delete(["ip", "netns", "delete", namespace], (NAMESPACE_FOLDER / namespace).exists)


def _delete(argv: list[str], exists: Callable[[], bool]) -> None:
    """Delete a link or namespace. It is no error if it was deleted already, for example by the kernel."""
    try:
        if exists():
            shell.run(argv)
    except errors.CommandFailed:
        if exists():
            raise


def _hardware_address(lab: str, host_number: int) -> str:
    digest = hashlib.sha256(lab.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:4], host_number))
