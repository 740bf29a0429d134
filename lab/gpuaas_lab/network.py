"""Bridge, network namespaces and links of a lab. Called by `lab.py`; one lab never touches the links of another."""

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
    """Held by whoever changes what all labs of the host share: subnets, and the folder of namespaces."""
    # The hyphen keeps it apart from the lock of a lab.
    with shell.locked(host.LOCKS / "host-network", "the network"):
        yield


def create_bridge(lab: plan.LabRecord) -> None:
    """Make the bridge with the gateway address, or complete one that an interrupted run left half done."""
    bridge = plan.bridge_name(lab.name)
    if not _link_exists(bridge):
        _require_free(lab)
        # A fixed hardware address: a bridge otherwise takes the one of a port and changes it as machines come and go.
        hardware_address = _hardware_address(lab.name, 1)
        shell.run(["ip", "link", "add", bridge, "address", hardware_address, "type", "bridge", "forward_delay", "0"])
    _keep_inside(bridge)
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
    """Give a machine that is not running its namespace, link and address; leftovers go first."""
    disconnect(lab.name, machine.name, machine.host_number)
    namespace = plan.unit_name(lab.name, machine.name)
    link = plan.veth_name(lab.name, machine.host_number)
    # The same hardware address at each start, so that nobody keeps a stale neighbour entry after a power cut.
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
    # The link first: deleting it is immediate, while the kernel frees a namespace some time later.
    if host_number is not None:
        _delete_link(plan.veth_name(lab, host_number))
    _delete_namespace(plan.unit_name(lab, machine))


def cut(lab: str, host_number: int) -> None:
    shell.run(["ip", "link", "set", plan.veth_name(lab, host_number), "nomaster", "down"])


def heal(lab: str, host_number: int) -> None:
    shell.run(["ip", "link", "set", plan.veth_name(lab, host_number), "master", plan.bridge_name(lab), "up"])


def links_cut(lab: str) -> set[str]:
    """Links of this lab that are attached to nothing."""
    links = _ip_json(["link", "show"])
    return {link["ifname"] for link in links if _is_link_of(lab, link["ifname"]) and "master" not in link}


def delete_leftovers(lab: str) -> None:
    """Links and namespaces that carry the lab's name but belong to no machine on record."""
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
    """`ip netns` mounts its folder on itself at the first use; take that back when nobody's namespace is left in it."""
    if NAMESPACE_FOLDER.is_dir() and not any(NAMESPACE_FOLDER.iterdir()):
        host.unmount(host.mounts_under(NAMESPACE_FOLDER))


def used_subnets() -> list[str]:
    """Every IPv4 network the host has an address in or a route to."""
    routes = [route["dst"] for route in _ip_json(["-4", "route", "show", "table", "all"]) if route["dst"] != "default"]
    addresses = [
        f"{address['local']}/32"
        for link in _ip_json(["-4", "address", "show"])
        for address in link.get("addr_info", [])
        if "local" in address
    ]
    return _valid_networks([*routes, *addresses])


def _require_free(lab: plan.LabRecord) -> None:
    """The lab chose its subnet when the host had it free; since then another lab or a tunnel may have come."""
    if plan.is_taken(lab.subnet, used_subnets()):
        raise errors.LabError(
            f"the subnet {lab.subnet} of lab {lab.name} is in use on this host (ip -4 route show root {lab.subnet})",
            f"free it, or give up the lab's disks for another subnet: gpuaas-lab down --purge --lab {lab.name}",
        )


def _keep_inside(bridge: str) -> None:
    """What comes from a machine ends at this host, also on a host that forwards for others."""
    Path(f"/proc/sys/net/ipv4/conf/{bridge}/forwarding").write_text("0")
    version_six = Path(f"/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6")
    if version_six.exists():
        version_six.write_text("1")


def _bridges_are_filtered() -> bool:
    """Container tools send bridged frames through iptables and drop what they did not forward themselves."""
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
    # ip prints an empty object for what it cannot describe.
    return [entry for entry in answer if entry]


def _is_link_of(lab: str, link: str) -> bool:
    return link.startswith(plan.veth_prefix(lab))


def _link_exists(link: str) -> bool:
    return link in link_names()


def _delete_link(link: str) -> None:
    # The kernel takes a link itself when it frees the namespace at the other end, at a moment of its own.
    _delete(["ip", "link", "delete", link], lambda: _link_exists(link))


def _delete_namespace(namespace: str) -> None:
    _delete(["ip", "netns", "delete", namespace], (NAMESPACE_FOLDER / namespace).exists)


def _delete(argv: list[str], exists: Callable[[], bool]) -> None:
    """Also when somebody else is faster: what counts is that it is gone."""
    try:
        if exists():
            shell.run(argv)
    except errors.CommandFailed:
        if exists():
            raise


def _hardware_address(lab: str, host_number: int) -> str:
    digest = hashlib.sha256(lab.encode()).digest()
    return ":".join(f"{byte:02x}" for byte in (0x02, *digest[:4], host_number))
