"""Pure: the address that a request came from, also through proxies, and the network that an address belongs to."""

import ipaddress
import re
from collections.abc import Sequence

FORWARDED_HEADERS = ("x-forwarded-for", "forwarded")
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


def remote(peer: str) -> str:
    """Return the address of a caller on another machine; empty for a caller on the platform's own machine."""
    return "" if is_loopback(peer) else peer


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
    text = ",".join(lines)
    if header == "x-forwarded-for":
        return text.split(",") if lines else []
    return [_for(element) for element in _parts(text, ",")] if lines else []


def _for(element: str) -> str:
    """Return the value of `for` in an element of the header Forwarded; empty if it has none or several."""
    pairs = [pair.partition("=") for pair in _parts(element, ";")]
    values = [value.strip().strip('"') for name, _, value in pairs if name.strip().lower() == "for"]
    return values[0] if len(values) == 1 else ""


def _parts(text: str, sign: str) -> list[str]:
    """Split the text at the signs that are outside of quotation marks: clients choose values that proxies quote, such
    as the name of the host. Quotation marks are counted from the right, because proxies append on the right. So a mark
    without its counterpart, which a client sent, does not hide what a proxy appended."""
    marks = list(re.finditer(rf'\\"|["{sign}]', text))
    quotes_left = sum(mark[0] == '"' for mark in marks)
    parts, begin = [], 0
    for mark in marks:
        if mark[0] == '"':
            quotes_left -= 1
        elif mark[0] == sign and quotes_left % 2 == 0:
            parts.append(text[begin : mark.start()])
            begin = mark.end()
    return [*parts, text[begin:]]


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
