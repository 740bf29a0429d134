"""Rules for URLs that operators configure: what is sent there must not cross a network unencrypted."""

import ipaddress
from urllib.parse import urlsplit


def is_protected(url: str) -> bool:
    """Return whether the URL is https, or http on loopback."""
    scheme = urlsplit(url).scheme
    return scheme == "https" or (scheme == "http" and on_loopback(url))


def on_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
