"""What a handler is and which parameters it accepts. Read by rules (may it run?) and by every handler module."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

Check = Callable[[object], bool]
"""Whether one parameter's value is acceptable: type and form together, so a handler never sees anything else."""

_CA_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+=*)(?: [\x20-\x7e]*)?")


class HandlerError(Exception):
    """The task failed for a reason with a stable code; the message is what the operator reads."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class TryLater(Exception):
    """Nothing is decided yet: no result is recorded, and the platform delivers the task again."""


class Replaced(TryLater):
    """Another agent stands in this one's place and takes the task from here; this one ends."""


@dataclasses.dataclass(frozen=True)
class Handler:
    params: Mapping[str, Check]
    function: Callable[[dict[str, Any]], dict[str, Any]]


def mismatch(expected: Mapping[str, Check], params: Mapping[str, object]) -> str | None:
    """What is wrong with the parameters, or None. Every expected name must be there, and no other."""
    missing, unknown = sorted(set(expected) - set(params)), sorted(set(params) - set(expected))
    if missing:
        return "missing parameters: " + ", ".join(missing)
    if unknown:
        return "unknown parameters: " + ", ".join(unknown)
    wrong = sorted(name for name, check in expected.items() if not check(params[name]))
    return "parameters of the wrong type or form: " + ", ".join(wrong) if wrong else None


def text(pattern: str) -> Check:
    compiled = re.compile(pattern)
    return lambda value: isinstance(value, str) and compiled.fullmatch(value) is not None


def whole_number(least: int, most: int) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def public_keys(value: object) -> bool:
    """A list of at least one OpenSSH public key, each on one line."""
    return isinstance(value, list) and len(value) > 0 and all(_is_public_key(key) for key in value)


def serials(value: object) -> bool:
    """A list of certificate serials; none at all is fine."""
    return isinstance(value, list) and all(type(found) is int and 0 < found < 2**64 for found in value)


def public_key_set(value: object) -> bool:
    """The same, possibly empty: a complete set may be nobody's."""
    return isinstance(value, list) and all(_is_public_key(key) for key in value)


def _is_public_key(value: object) -> bool:
    found = _CA_KEY.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return False
    try:
        blob = base64.b64decode(found.group(2), validate=True)
    except binascii.Error:
        return False
    # The blob repeats its own type, preceded by a four-byte length.
    kind = found.group(1).encode()
    return blob.startswith(len(kind).to_bytes(4, "big") + kind)


SHA256 = text(r"[0-9a-f]{64}")
DIGEST = text(r"sha256:[0-9a-f]{64}")
PLACEMENT_ID = text(r"plc_[A-Za-z0-9]{1,100}")
FILE_MODE = text(r"0600|0644|0700|0755")
SIZE_BYTES_MAX = 2**53
USER = text(r"[a-z][a-z0-9-]{0,30}")
ALLOCATION_ID = text(r"[a-z]+_[A-Za-z0-9]{1,100}")
PRINCIPAL = text(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
