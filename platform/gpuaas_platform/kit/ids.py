"""Make ids, which sort by creation time, and secrets, whose prefix and checksum let secret scanners recognise them."""

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
"""State of the last id: its millisecond, the same in base 32, and how many ids of that millisecond came before it."""


def new(prefix: str) -> str:
    """Return a new id. In base 32: 10 letters of time in milliseconds, 3 of a counter, 13 random ones (65 bits).

    Within one process, each id sorts after the one before. Security must not depend on ids being hard to guess.
    """
    letters, count = _next()
    by_chance = random.getrandbits(104).to_bytes(13, "big").translate(_LETTER_OF_BYTE).decode()
    return f"{prefix}_{letters}{_PAIRS[count >> 5]}{_ALPHABET[count & 31]}{by_chance}"


def new_secret(kind: str) -> str:
    body = _base32(secrets.randbits(260), 52)
    checksum = int.from_bytes(hashlib.sha256(f"{kind}:{body}".encode()).digest()[:4], "big") & 0x3FFFFFFF
    return f"gpuaas_{kind}_{body}{_base32(checksum, 6)}"


def digest(secret: str) -> str:
    """Return the digest that is stored instead of a secret. Secrets have 260 random bits, so a plain hash is enough."""
    return hashlib.sha256(secret.encode()).hexdigest()


def _next() -> tuple[str, int]:
    """Return time and counter of the next id. Use the next millisecond if this one is full; never go back in time."""
    global _millisecond, _letters, _count
    with _lock:
        now, _count = time.time_ns() // 1_000_000, _count + 1
        if now > _millisecond or _count == _PER_MILLISECOND_MAX:
            _millisecond = max(now, _millisecond + 1)
            _letters, _count = _base32(_millisecond, 10), 0
        return _letters, _count


def _base32(value: int, length: int) -> str:
    """Return the number in base 32, made two letters at a time. `length` must be even."""
    return "".join([_PAIRS[value >> shift & 1023] for shift in range(5 * length - 10, -1, -10)])
