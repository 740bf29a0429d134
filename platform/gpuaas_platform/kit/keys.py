"""Signing keys of the platform: one file each in the data folder, made at first start, readable only by the owner.

They are files because they are needed while custody is sealed. `access.machines.authority` keeps its key in custody.
"""

import contextlib
import functools
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

AUDIT_FILE = "audit.pem"


@dataclass(frozen=True)
class Keys:
    tasks: Ed25519PrivateKey
    """The key that signs node tasks."""
    audit: Ed25519PrivateKey
    """The key that signs the heads of the audit chains."""

    def request_digest(self, content: bytes) -> str:
        """Return a keyed digest. A request may contain a password, and the stored digest must not help to guess it."""
        return hashlib.blake2b(content, key=self._digest_key, digest_size=32).hexdigest()

    def fingerprint(self, content: bytes) -> str:
        """Return a short keyed digest that lets users distinguish values. It must not help to guess a short value."""
        return hashlib.blake2b(content, key=self._fingerprint_key, digest_size=8).hexdigest()

    @functools.cached_property
    def _digest_key(self) -> bytes:
        return self._derived(b"gpuaas request digest")

    @functools.cached_property
    def _fingerprint_key(self) -> bytes:
        return self._derived(b"gpuaas fingerprint")

    def _derived(self, purpose: bytes) -> bytes:
        return hashlib.blake2b(purpose, key=self.tasks.private_bytes_raw(), digest_size=32).digest()

    def tasks_public_pem(self) -> str:
        raw = self.tasks.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return raw.decode()


def load(folder: Path) -> Keys:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    tasks, audit = folder / "tasks.pem", folder / AUDIT_FILE
    for path in (tasks, audit):
        if not path.exists():
            create_private(path, private_pem(Ed25519PrivateKey.generate()))
    return Keys(read(tasks), read(audit))


def read(path: Path) -> Ed25519PrivateKey:
    """Read a key that must exist."""
    return parse(path.read_bytes(), str(path))


def parse(pem: bytes, name: str) -> Ed25519PrivateKey:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, Ed25519PrivateKey):
        raise TypeError(f"{name} is not an Ed25519 key")
    return key


def private_pem(key: Ed25519PrivateKey | EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def openssh_public(key: Ed25519PrivateKey) -> str:
    """Return the public key in the form that sshd reads."""
    raw = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return raw.decode()


def write_private(path: Path, content: bytes) -> None:
    """Replace the file atomically. Other users can never read it.

    Only for one writer at a time: it overwrites the temporary file that a crashed writer left."""
    draft = path.with_suffix(".new")
    _write(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), content)
    draft.rename(path)


def create_private(path: Path, content: bytes) -> None:
    """Create the file unless it exists. If several processes do this at once, the first one's file stays.

    It uses a link, which fails if the file exists; a rename would replace a key that is already in use."""
    descriptor, draft = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    _write(descriptor, content)
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    os.unlink(draft)


def _write(descriptor: int, content: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
