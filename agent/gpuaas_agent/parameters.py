"""Pure: the parameter values that a task may have. Used by `rules` and by the table of task types in `handlers`."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping

Check = Callable[[object], bool]
"""Returns whether the value of a parameter has the right type and form. Handlers get only checked values."""

_PUBLIC_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) ([A-Za-z0-9+/]+=*)(?: [\x20-\x7e]*)?")


def mismatch(expected: Mapping[str, Check], params: Mapping[str, object]) -> str | None:
    """Return what is wrong with the parameters of a task, or None. Exactly the expected names must be present."""
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
    """Accept a list of at least one OpenSSH public key, each on one line."""
    return isinstance(value, list) and len(value) > 0 and all(_is_public_key(key) for key in value)


def serials(value: object) -> bool:
    """Accept a list of certificate serials, possibly empty."""
    return isinstance(value, list) and all(type(serial) is int and 0 < serial < 2**64 for serial in value)


def public_key_set(value: object) -> bool:
    """Accept a list of OpenSSH public keys, possibly empty."""
    return isinstance(value, list) and all(_is_public_key(key) for key in value)


def people(value: object) -> bool:
    """Accept a list of people's accounts, possibly empty, in which no login and no number is used twice."""
    if not isinstance(value, list) or not all(_is_person(person) for person in value):
        return False
    return len({person["login"] for person in value}) == len({person["uid"] for person in value}) == len(value)


def _is_person(value: object) -> bool:
    return isinstance(value, dict) and mismatch(_PERSON, value) is None and value["gid"] == value["uid"]


def _is_public_key(value: object) -> bool:
    match = _PUBLIC_KEY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return False
    try:
        blob = base64.b64decode(match.group(2), validate=True)
    except binascii.Error:
        return False
    # The decoded key starts with the length of its type in four bytes, and the type.
    kind = match.group(1).encode()
    return blob.startswith(len(kind).to_bytes(4, "big") + kind)


SHA256 = text(r"[0-9a-f]{64}")
DIGEST = text(r"sha256:[0-9a-f]{64}")
PLACEMENT_ID = text(r"plc_[A-Za-z0-9]{1,100}")
FILE_MODE = text(r"0600|0644|0700|0755")
SIZE_BYTES_MAX = 2**53
USER = text(r"[a-z][a-z0-9-]{0,30}")
ALLOCATION_ID = text(r"[a-z]+_[A-Za-z0-9]{1,100}")
PRINCIPAL = text(r"[A-Za-z0-9][A-Za-z0-9_.:@-]{0,127}")
_UID = whole_number(1000, 2_000_000_000)
_PERSON: Mapping[str, Check] = {
    "user_id": text(r"[a-z]+_[A-Za-z0-9]{1,100}"),
    "login": text(r"[a-z_][a-z0-9_-]{0,30}"),
    "uid": _UID,
    "gid": _UID,
    "principal": text(r"[a-z]+_[A-Za-z0-9]{1,100}/[a-z]+_[A-Za-z0-9]{1,100}"),
    "public_keys": public_key_set,
}
