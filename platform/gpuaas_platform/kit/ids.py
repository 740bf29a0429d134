"""Ids are prefixed and sort by time of creation. Secrets carry a prefix and a checksum so that scanners find them."""

import hashlib
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_lock = threading.Lock()
_last_value = 0


def new(prefix: str) -> str:
    """48 bits of milliseconds, then 80 random bits, in base 32; in one process each is above the last."""
    return f"{prefix}_{_base32(_next_value(), 26)}"


def new_secret(kind: str) -> str:
    body = _base32(secrets.randbits(260), 52)
    return f"gpuaas_{kind}_{body}{_checksum(kind, body)}"


def digest(secret: str) -> str:
    """What is stored of a random secret. The secrets have 260 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _next_value() -> int:
    global _last_value
    with _lock:
        value = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
        _last_value = value if value > _last_value else _last_value + 1
        return _last_value


def _base32(value: int, length: int) -> str:
    return "".join(_ALPHABET[value >> shift & 31] for shift in range(5 * (length - 1), -1, -5))


def _checksum(kind: str, body: str) -> str:
    return _base32(int.from_bytes(hashlib.sha256(f"{kind}:{body}".encode()).digest()[:4], "big") & 0x3FFFFFFF, 6)
