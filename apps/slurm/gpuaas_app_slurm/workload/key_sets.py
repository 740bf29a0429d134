"""The file slurm.jwks with two keys of a cluster: the old one, then the new one. Pure; `key_rotation` writes it.

Slurm signs with the default key, and accepts a message by the key that the message names. A daemon without this file
signs with slurm.key, names no key, and accepts what slurm.key verifies under any name."""

import base64
import hashlib
from typing import Literal

import msgspec
from gpuaas_sdk.failures import Refused

from gpuaas_app_slurm.workload import footprint


class Key(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One key, as Slurm reads it."""

    kid: str
    k: str
    alg: Literal["", "HS256"] = ""
    kty: Literal["", "oct"] = ""
    use: Literal["", "default"] = ""

    @property
    def content(self) -> bytes:
        return base64.b64decode(self.k)


class KeySet(msgspec.Struct, frozen=True):
    keys: tuple[Key, Key]

    @property
    def new(self) -> bytes:
        return self.keys[1].content


def started(old: bytes, new: bytes) -> KeySet:
    """Return the set with which daemons accept both keys and sign with the old one."""
    return KeySet((_key(old, is_default=True), _key(new)))


def switched(present: KeySet) -> KeySet:
    """Return the set with which daemons accept both keys and sign with the new one."""
    old, new = present.keys
    return KeySet((_key(old.content), _key(new.content, is_default=True)))


def encode(wanted: KeySet) -> bytes:
    return msgspec.json.encode(wanted)


def decode(content: bytes) -> KeySet:
    try:
        return msgspec.json.decode(content, type=KeySet)
    except msgspec.DecodeError as error:
        # The error may quote a key, so it is not shown.
        raise Refused(
            f"{footprint.KEY_SET} on the controller machine was not written by this app",
            fix="delete the file, and restart slurmctld, slurmdbd and slurmd; then request it again",
        ) from error


def _key(content: bytes, *, is_default: bool = False) -> Key:
    # The name depends on the key alone: a machine that missed a rotation finds the keys that it has.
    return Key(
        kid=hashlib.sha256(content).hexdigest()[:16],
        k=base64.b64encode(content).decode(),
        alg="HS256",
        kty="oct",
        use="default" if is_default else "",
    )
