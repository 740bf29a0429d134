"""Files that hold key-encryption keys: in the clear and owner-only, sealed by a passphrase, or given from outside.

`key_ring` reads and writes keys through one of these."""

import os
from pathlib import Path
from typing import Protocol

import argon2.low_level
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gpuaas_platform.custody import envelope
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import ids, keys

Keys = dict[str, bytes]
"""Key id -> key."""
PLAIN = "custody.kek"
SEALED = "custody.sealed"
_KEYS = msgspec.json.Decoder(Keys)
_ABOUT = b"gpuaas custody keys sealed v1"
_NONCE_BYTES = 12


class KeyFile(Protocol):
    path: Path
    writable: bool
    description: str
    """Where the keys come from, for people."""

    def read(self) -> Keys:
        """Every key; none when there is no file yet. A sealed file raises `custody.Sealed`."""

    def write(self, keys_by_id: Keys) -> None:
        """Replace the file."""

    def create(self, keys_by_id: Keys) -> None:
        """Write the file unless it exists: of two processes that make the first key, one wins."""


class PlainFile:
    """The default: a user who can read the data folder can read the keys."""

    writable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = f"the file {path}"

    def read(self) -> Keys:
        return _KEYS.decode(self.path.read_bytes()) if self.path.exists() else {}

    def write(self, keys_by_id: Keys) -> None:
        keys.write_private(self.path, msgspec.json.encode(keys_by_id))

    def create(self, keys_by_id: Keys) -> None:
        keys.create_private(self.path, msgspec.json.encode(keys_by_id))


class GivenFile(PlainFile):
    """Keys that are managed outside of the platform, such as systemd credentials; never written."""

    writable = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.description = f"{path}, given from outside"

    def read(self) -> Keys:
        keys_by_id = super().read()
        if not keys_by_id:
            raise custody.Unreadable(f"{self.path} holds no key; make one: gpuaas-platform custody key")
        return keys_by_id


class Box(msgspec.Struct, frozen=True):
    """A sealed file: the keys, encrypted with a key that is derived from the passphrase."""

    salt: bytes
    content: bytes
    kdf: str = "argon2id"
    time_cost: int = 3
    memory_kib: int = 64 * 1024
    parallelism: int = 4


_BOX = msgspec.json.Decoder(Box)


class SealedFile:
    """After a start the keys cannot be read; `open` with the passphrase keeps what opens them in memory only."""

    writable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = f"the file {path}, sealed by a passphrase"
        self._box: Box | None = None
        """As it was opened: its salt and costs belong to the key we hold."""
        self._passphrase_key = b""

    @property
    def is_open(self) -> bool:
        return self._box is not None

    def open(self, passphrase: str) -> None:
        """Slow on purpose, because of guessing. Without a file, this passphrase seals the first one."""
        if not self.path.exists():
            self.seal({ids.new("kek"): envelope.new_key()}, passphrase)
        box = _BOX.decode(self.path.read_bytes())
        key = _stretched(passphrase, box)
        _opened(box, key)
        self._box, self._passphrase_key = box, key

    def seal(self, keys_by_id: Keys, passphrase: str) -> None:
        """Make the file, unless there is one."""
        box = Box(salt=os.urandom(16), content=b"")
        keys.create_private(self.path, msgspec.json.encode(_filled(box, _stretched(passphrase, box), keys_by_id)))

    def read(self) -> Keys:
        if self._box is None:
            raise custody.Sealed(f"{self.path} is sealed, and the passphrase was not given since the start")
        present = _BOX.decode(self.path.read_bytes())
        if present.salt != self._box.salt:
            raise custody.Sealed(f"{self.path} was sealed again with another passphrase")
        return _opened(present, self._passphrase_key)

    def write(self, keys_by_id: Keys) -> None:
        self.read()
        if self._box is None:
            raise LookupError(self.path)
        keys.write_private(self.path, msgspec.json.encode(_filled(self._box, self._passphrase_key, keys_by_id)))

    def create(self, keys_by_id: Keys) -> None:
        """There is a file as soon as this one is open."""
        self.read()


def _stretched(passphrase: str, box: Box) -> bytes:
    return argon2.low_level.hash_secret_raw(
        passphrase.encode(),
        box.salt,
        time_cost=box.time_cost,
        memory_cost=box.memory_kib,
        parallelism=box.parallelism,
        hash_len=envelope.KEY_BYTES,
        type=argon2.low_level.Type.ID,
    )


def _filled(box: Box, key: bytes, keys_by_id: Keys) -> Box:
    nonce = os.urandom(_NONCE_BYTES)
    sealed = AESGCM(key).encrypt(nonce, msgspec.json.encode(keys_by_id), _ABOUT)
    return msgspec.structs.replace(box, content=nonce + sealed)


def _opened(box: Box, key: bytes) -> Keys:
    try:
        return _KEYS.decode(AESGCM(key).decrypt(box.content[:_NONCE_BYTES], box.content[_NONCE_BYTES:], _ABOUT))
    except InvalidTag as error:
        raise custody.PassphraseWrong("this passphrase does not open the sealed key") from error
