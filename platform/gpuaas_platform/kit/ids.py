"""Ids are prefixed and sort by time of creation. Secrets carry a prefix and a checksum so that scanners find them."""

import hashlib
import random
import secrets
import threading
import time

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_LETTER_OF_BYTE = bytes(ord(_ALPHABET[value % 32]) for value in range(256))
_PER_MILLISECOND_MAX = 32**3
_lock = threading.Lock()
_millisecond, _letters, _count = 0, "", 0
"""Of the id made last: its time, the same in base 32, and how many of that time there were before it."""


def new(prefix: str) -> str:
    """In base 32: 10 letters of milliseconds, 3 that count within one process, 13 by chance, 65 bits of it.

    In one process each is above the last. Nothing rests on an id being hard to guess.
    """
    letters, count = _next()
    by_chance = random.randbytes(13).translate(_LETTER_OF_BYTE).decode()
    return f"{prefix}_{letters}{_PAIRS[count >> 5]}{_ALPHABET[count & 31]}{by_chance}"


def new_secret(kind: str) -> str:
    body = _base32(secrets.randbits(260), 52)
    checksum = int.from_bytes(hashlib.sha256(f"{kind}:{body}".encode()).digest()[:4], "big") & 0x3FFFFFFF
    return f"gpuaas_{kind}_{body}{_base32(checksum, 6)}"


def digest(secret: str) -> str:
    """What is stored of a random secret. The secrets have 260 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _next() -> tuple[str, int]:
    """A millisecond that is full, or that the clock was set back behind, is followed by the next."""
    global _millisecond, _letters, _count
    with _lock:
        now, _count = time.time_ns() // 1_000_000, _count + 1
        if now > _millisecond or _count == _PER_MILLISECOND_MAX:
            _millisecond = max(now, _millisecond + 1)
            _letters, _count = _base32(_millisecond, 10), 0
        return _letters, _count


def _base32(value: int, length: int) -> str:
    """Two letters at a time. `length` is even."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(5 * length - 10, -1, -10)])
