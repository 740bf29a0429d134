"""What a backup contains: its header, which comes first, and its signed manifest with all digests, which comes last."""

import base64
import datetime
import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from gpuaas_platform.backup.errors import NotSound
from gpuaas_platform.record import chain

FORMAT = 1
HEADER, MANIFEST, SIGNATURE = "header.json", "manifest.json", "manifest.signature"
_SIGNED = b"gpuaas-backup-1\n"
Custody = Literal["plain", "sealed", "outside", "unused"]
"""Where the key of custody is: in the backup, in it under its passphrase, not in it, or there is none yet."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    release: str
    """Release of the platform that made the backup."""
    engine: str
    """`sqlite` or `postgres`. The rows are the same for both."""
    cut_at: datetime.datetime
    """Every change that was committed before is in the backup, and none that was committed after."""
    migrations: list[int]
    columns: dict[str, list[str]]
    """The columns of each table, in the order of the values in its rows."""
    sequences: dict[str, int]
    """The last number that each counting column gave out."""
    has_artifacts: bool


class Digest(msgspec.Struct, frozen=True):
    count: int
    """Number of rows of a table, or bytes of a file."""
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    header: Header
    custody: Custody
    tables: dict[str, Digest]
    """Of the rows of each table in the order of its key: one JSON array per row, each followed by a line feed."""
    files: dict[str, Digest]


class Signature(msgspec.Struct, frozen=True):
    key: str
    """The platform's public audit key, base64."""
    signature: str


class Running:
    """A digest of content that arrives in parts."""

    def __init__(self) -> None:
        self._count, self._sha256 = 0, hashlib.sha256()

    def add(self, content: bytes, count: int) -> None:
        self._sha256.update(content)
        self._count += count

    def digest(self) -> Digest:
        return Digest(self._count, self._sha256.hexdigest())


def digest_of(content: bytes) -> Digest:
    running = Running()
    running.add(content, len(content))
    return running.digest()


def sign(key: Ed25519PrivateKey, content: bytes) -> bytes:
    """Sign an encoded manifest. Without a signature, anyone with the recipient could make a backup."""
    signature = base64.b64encode(key.sign(_SIGNED + content)).decode()
    return msgspec.json.encode(Signature(chain.public_text(key.public_key()), signature))


def check_signature(content: bytes, signature: Signature) -> None:
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature.key, validate=True))
        key.verify(base64.b64decode(signature.signature, validate=True), _SIGNED + content)
    except (InvalidSignature, ValueError) as error:
        raise NotSound("the signature of the backup's manifest is not valid") from error


def differences(wanted: Mapping[str, Digest], present: Mapping[str, Digest]) -> Sequence[str]:
    """Return what differs from the manifest, as text for people."""
    texts = [f"{name} is missing" for name in wanted if name not in present]
    texts += [f"{name} is not in the manifest" for name in present if name not in wanted]
    for name, digest in wanted.items():
        if name in present and present[name] != digest:
            texts.append(f"{name} has {present[name].count} rows or bytes and another digest ({digest.count} expected)")
    return texts
