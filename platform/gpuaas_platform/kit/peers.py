"""Pure: the address that a request came from, also through proxies, and the network that an address belongs to."""

import ipaddress
import re
from collections.abc import Sequence

FORWARDED_HEADERS = ("x-forwarded-for", "forwarded")
_FOR = re.compile(r'(?:^|;)\s*for\s*=\s*"?([^";]*)', re.IGNORECASE)
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def network_of(peer: str) -> str:
    """Return the unit in which callers are counted: an IPv4 address, or the /64 of an IPv6 address, because one machine
    usually has all addresses of a /64. Other text is returned unchanged."""
    address = _parsed(peer) if ":" in peer else None
    if not isinstance(address, ipaddress.IPv6Address):
        return str(address) if address else peer
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))


def is_loopback(peer: str) -> bool:
    address = _parsed(peer)
    return address is not None and address.is_loopback


class Proxies:
    """The proxies whose statement about the address of the caller is accepted."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._networks = [ipaddress.ip_network(text) for text in trusted]

    def __bool__(self) -> bool:
        return bool(self._networks)

    def peer(self, connected: str, header: str, lines: Sequence[str]) -> str:
        """Return the address of the caller. `connected` is the address that opened the connection, `lines` are the
        values of the header that proxies extend on the right: the last address that a trusted proxy reported."""
        peer = connected
        for hop in reversed(_hops(header, lines)):
            address = _parsed(peer)
            if address is None or not self._is_trusted(address):
                break
            reported = _parsed(hop)
            if reported is None:
                break
            peer = str(reported)
        return peer

    def _is_trusted(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def _hops(header: str, lines: Sequence[str]) -> list[str]:
    elements = ",".join(lines).split(",") if lines else []
    if header == "x-forwarded-for":
        return elements
    return [match[1] if (match := _FOR.search(element)) else "" for element in elements]


def _parsed(text: str) -> _Address | None:
    """Return the address; None if it is not an address. A port is ignored: `192.0.2.1:80`, `[2001:db8::1]:80`."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
