"""Pure: whether an address belongs to the public internet, or to this machine.

`artifacts.fetch` connects to public addresses only, unless an operator lists the host."""

import ipaddress

_TRANSLATED = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""IPv4-mapped addresses, and NAT64: with DNS64, a host that has only IPv4 gets such an address. The last 32 bits are
the IPv4 address that receives the packets, so that one decides."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
"""All global unicast addresses. Everything else is refused: `::127.0.0.1`, local NAT64 (64:ff9b:1::/48), fc00::/7 …"""
_NOT_PUBLIC = tuple(
    ipaddress.ip_network(network)
    for network in (
        "2001::/23",  # IETF protocols; Teredo (2001::/32) contains an IPv4 address
        "2001:db8::/32",
        "2002::/16",  # 6to4 contains an IPv4 address
        "3fff::/20",
        "192.0.0.0/24",
        "192.88.99.0/24",  # relays of 6to4
    )
)
_LAST_32_BITS = (1 << 32) - 1
_ISATAP = 0x5EFE
"""In bits 32 to 63 of an IPv6 address, with or without the universal bit: the rest is an IPv4 address."""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine: a loopback address, or the name `localhost`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _TRANSLATED):
            return is_public(str(ipaddress.IPv4Address(int(address) & _LAST_32_BITS)))
        if address not in _UNICAST or (int(address) >> 32) & 0xFDFF_FFFF == _ISATAP:
            return False
    is_special = any(address.version == network.version and address in network for network in _NOT_PUBLIC)
    return address.is_global and not address.is_multicast and not is_special
