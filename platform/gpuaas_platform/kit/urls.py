"""Rules for URLs that operators configure: what is sent there must not cross a network unencrypted."""

from urllib.parse import urlsplit

from gpuaas_platform.kit import addresses


def is_protected(url: str) -> bool:
    """Return whether the URL is https, or http on loopback, with a host and a port that can exist."""
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and (parts.scheme == "https" or (parts.scheme == "http" and on_loopback(url)))


def on_loopback(url: str) -> bool:
    return addresses.is_loopback(urlsplit(url).hostname or "")
