"""Pure: which public keys are accepted, and which keys the allocation's user on a machine must have."""

import base64
import binascii
import datetime
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from gpuaas_contract import errors
from gpuaas_contract.ssh_keys import RSA_BITS_MIN, PersonOnAllocation

from gpuaas_platform.allocations import installation

RECHECK_AFTER = datetime.timedelta(seconds=10)
"""How often all machines' keys are compared with people's roles. A removed role takes effect within this time."""
_FIELD = {"field": "public_key"}
_INSTALLABLE = re.compile(r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/]+=*")
"""The keys that agents install. An agent refuses the complete set if one key is different."""
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
    """A person chosen for an allocation, with one of their keys. The key is empty if the person has none."""

    user_id: str
    name: str
    is_active: bool
    may_enter: bool
    public_key: str
    fingerprint: str


def read_public_key(text: str, comment: str) -> PublicKey:
    """Parse a public key: one line without SSH options. Refuse a key that is not valid or too weak."""
    words = text.strip().split(None, 2)
    if len(text.strip().splitlines()) != 1 or len(words) < 2:
        raise errors.ValidationFailed(
            "public_key is one line: the type, the key, and a comment if you like.",
            details=_FIELD,
            fix="Send the content of a .pub file: cat ~/.ssh/id_ed25519.pub",
        )
    line = _checked(f"{words[0]} {words[1]}")
    label = (comment or " ".join(words[2:])).strip()[:100]
    if not label.isprintable():
        raise errors.ValidationFailed("The comment has characters that cannot be shown.", details={"field": "comment"})
    algorithm, blob = line.split()
    return PublicKey(algorithm, blob, label)


def is_installable(public_key: str) -> bool:
    """Return whether agents install the key. Earlier releases stored keys of other kinds; such a key is left out, so
    that it does not block the keys and the removals of other people."""
    return _INSTALLABLE.fullmatch(public_key) is not None


def wanted(chosen: Iterable[Chosen]) -> list[Chosen]:
    """Return the keys that the machine must have, sorted, so that the same keys always have the same digest."""
    keys = [person for person in chosen if person.is_active and person.may_enter and is_installable(person.public_key)]
    return sorted(keys, key=lambda person: (person.user_id, person.fingerprint))


def lines(keys: Iterable[Chosen]) -> list[str]:
    return [f"{key.public_key} {key.name}" for key in keys]


def digest(chosen: Iterable[Chosen]) -> str:
    """Return the digest of the keys that the machine must have."""
    return installation.digest(lines(wanted(chosen)))


def shown(chosen: Sequence[Chosen]) -> list[PersonOnAllocation]:
    people = {person.user_id: person for person in chosen}
    keys = wanted(chosen)
    return [
        PersonOnAllocation(
            user_id=user_id,
            name=person.name,
            fingerprints=[key.fingerprint for key in keys if key.user_id == user_id],
            why_not=_why_not(person),
        )
        for user_id, person in sorted(people.items())
    ]


def _why_not(person: Chosen) -> str:
    if not person.is_active:
        return "they are disabled"
    if not person.may_enter:
        return "none of their roles in the project lets them log in as root (access.machine.root)"
    if not person.public_key:
        return "they have registered no key"
    return "" if is_installable(person.public_key) else "their key is of a kind that machines do not accept"


def _checked(line: str) -> str:
    """Return the key as OpenSSH writes it: the parser ignores characters that are not base64."""
    try:
        key = serialization.load_ssh_public_key(line.encode())
    except (ValueError, UnsupportedAlgorithm, binascii.Error, UnicodeEncodeError) as error:
        raise errors.ValidationFailed("public_key is not an OpenSSH public key.", details=_FIELD) from error
    written = ""
    if isinstance(key, _KINDS):
        written = key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
    # The parser returns the plain key that is inside a certificate or belongs to a security key. The types then differ.
    if written.partition(" ")[0] != line.partition(" ")[0] or not is_installable(written):
        raise errors.ValidationFailed("public_key is not an Ed25519, ECDSA or RSA key.", details=_FIELD)
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < RSA_BITS_MIN:
        raise errors.ValidationFailed(
            f"public_key is an RSA key of {key.key_size} bits; it needs at least {RSA_BITS_MIN}.",
            details=_FIELD,
            fix="ssh-keygen -t ed25519",
        )
    return written
