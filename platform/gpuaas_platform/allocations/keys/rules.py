"""Pure: which public keys are taken, whose are wanted on a machine, and what to do until it has them."""

import base64
import binascii
import datetime
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from gpuaas_contract import errors
from gpuaas_contract.ssh_keys import RSA_BITS_MIN, PersonOnAllocation

RECHECK_AFTER = datetime.timedelta(seconds=10)
"""How soon a role that was taken away is noticed."""
RETRY_AFTER = datetime.timedelta(seconds=15)
_FIELD = {"field": "public_key"}
_KINDS = (ed25519.Ed25519PublicKey, ec.EllipticCurvePublicKey, rsa.RSAPublicKey)


@dataclass(frozen=True)
class PublicKey:
    algorithm: str
    blob: str
    comment: str

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(base64.b64decode(self.blob)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")

    @property
    def line(self) -> str:
        return f"{self.algorithm} {self.blob}"


@dataclass(frozen=True)
class Chosen:
    """One person on one allocation, with one of their keys or none."""

    user_id: str
    name: str
    is_active: bool
    may_enter: bool
    public_key: str
    fingerprint: str


class KeySet(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the keys on one allocation's machine."""

    allocation_id: str
    digest: str
    """Of the lines the machine was last known to have."""
    installed: list[str] = []
    installed_at: datetime.datetime | None = None
    asked: str = ""
    """Digest of the lines it was last told to have; empty when the last telling has ended."""
    asked_fingerprints: list[str] = []
    task_id: str = ""
    retry_at: datetime.datetime | None = None
    error: str = ""


def read_public_key(text: str, comment: str) -> PublicKey:
    """One line without options; what OpenSSH would refuse, or what is too weak, is refused here already."""
    words = text.strip().split(None, 2)
    if len(text.strip().splitlines()) != 1 or len(words) < 2:
        raise errors.ValidationFailed(
            "public_key is one line: the type, the key, and a comment if you like.",
            details=_FIELD,
            fix="Send what is in a .pub file: cat ~/.ssh/id_ed25519.pub",
        )
    _check_strength(f"{words[0]} {words[1]}")
    said = (comment or " ".join(words[2:])).strip()[:100]
    if not said.isprintable():
        raise errors.ValidationFailed("The comment has characters that cannot be shown.", details={"field": "comment"})
    return PublicKey(words[0], words[1], said)


def wanted(chosen: Iterable[Chosen]) -> list[Chosen]:
    """Exactly what the machine should have, in an order that does not depend on who was chosen first."""
    found = [one for one in chosen if one.is_active and one.may_enter and one.public_key]
    return sorted(found, key=lambda one: (one.user_id, one.fingerprint))


def lines(keys: Iterable[Chosen]) -> list[str]:
    return [f"{one.public_key} {one.name}" for one in keys]


def digest(keys: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def new_set(allocation_id: str) -> KeySet:
    """A machine that was told nothing has no keys."""
    return KeySet(allocation_id=allocation_id, digest=digest([]))


def next_step(present: KeySet, wanted_digest: str, now: datetime.datetime) -> Literal["nothing", "wait", "tell"]:
    if present.asked:
        return "wait" if present.asked == wanted_digest else "tell"
    if present.digest == wanted_digest:
        return "nothing"
    return "wait" if present.retry_at is not None and present.retry_at > now else "tell"


def asked(present: KeySet, keys: Sequence[Chosen], task_id: str) -> KeySet:
    return msgspec.structs.replace(
        present, asked=digest(lines(keys)), asked_fingerprints=[one.fingerprint for one in keys], task_id=task_id
    )


def answered(present: KeySet, task_id: str, error: str, now: datetime.datetime) -> KeySet:
    """Only the last telling counts; one before it may end later and says nothing about the set that is wanted."""
    if present.task_id != task_id:
        return present
    ended = msgspec.structs.replace(present, asked="", asked_fingerprints=[], task_id="", error=error)
    if error:
        return msgspec.structs.replace(ended, retry_at=now + RETRY_AFTER)
    return msgspec.structs.replace(
        ended, digest=present.asked, installed=present.asked_fingerprints, installed_at=now, retry_at=None
    )


def shown(chosen: Sequence[Chosen]) -> list[PersonOnAllocation]:
    people = {one.user_id: one for one in chosen}
    keys = wanted(chosen)
    return [
        PersonOnAllocation(
            user_id=user_id,
            name=one.name,
            fingerprints=[key.fingerprint for key in keys if key.user_id == user_id],
            why_not=_why_not(one),
        )
        for user_id, one in sorted(people.items())
    ]


def _why_not(one: Chosen) -> str:
    if not one.is_active:
        return "they are disabled"
    if not one.may_enter:
        return "no role of theirs in the project lets them log in to machines"
    return "" if one.public_key else "they have registered no key"


def _check_strength(line: str) -> None:
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm, binascii.Error, UnicodeEncodeError) as error:
        raise errors.ValidationFailed("public_key is not an OpenSSH public key.", details=_FIELD) from error
    if not isinstance(key, _KINDS):
        raise errors.ValidationFailed("public_key is not an Ed25519, ECDSA or RSA key.", details=_FIELD)
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise errors.ValidationFailed(
            f"public_key is an RSA key of {key.key_size} bits; {RSA_BITS_MIN} is the least.",
            details=_FIELD,
            fix="ssh-keygen -t ed25519",
        )
