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


def public_keys(value: object) -> bool:
    """A list of at least one OpenSSH public key, each on one line."""
    return isinstance(value, list) and len(value) > 0 and all(_is_public_key(key) for key in value)


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


USER = text(r"[a-z][a-z0-9-]{0,30}")
ALLOCATION_ID = text(r"[a-z]+_[A-Za-z0-9]{1,100}")
PRINCIPAL = text(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
