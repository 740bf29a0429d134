"""Files with the key-encryption keys. They are separate from the database, so that it alone reveals no secret.

A file is either plain text that only its owner can read, or sealed by a passphrase, or managed outside of the platform.
It has one key, and two during a rotation. `embedded` stores in the database which key is the current one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import argon2.low_level
import msgspec
from cryptography.exceptions import InvalidTag

from gpuaas_platform.custody import envelope
from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import ids, keys, private
from gpuaas_platform.kit.settings import Settings

Keys = dict[str, bytes]
"""Key id -> key."""
PLAIN = "custody.kek"
SEALED = "custody.sealed"
_KEYS = msgspec.json.Decoder(Keys)
_ABOUT = b"gpuaas custody keys sealed v1"


class PlainFile:
    """A plain key file, the default: users who can read the data folder can read the keys."""

    writable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = f"the file {path}"
        """Where the keys that encrypt secrets come from, as text for people."""

    def read(self) -> Keys:
        """Return all keys; empty if there is no file yet. A sealed file raises `custody.Sealed`."""
        return _KEYS.decode(self.path.read_bytes()) if self.path.exists() else {}

    def write(self, keys_by_id: Keys) -> None:
        keys.write_private(self.path, msgspec.json.encode(keys_by_id))

    def create(self, keys_by_id: Keys) -> None:
        """Write the file if it does not exist. If two processes do this at the same time, only one file is written."""
        keys.create_private(self.path, msgspec.json.encode(keys_by_id))


class GivenFile(PlainFile):
    """A key file that is managed outside of the platform, such as a systemd credential. It is never written."""

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
    """The content of a sealed file: the keys, encrypted with a key that is derived from the passphrase."""

    salt: bytes
    content: bytes
    kdf: str = "argon2id"
    time_cost: int = 3
    memory_kib: int = 64 * 1024
    parallelism: int = 4


_BOX = msgspec.json.Decoder(Box)


class SealedFile:
    """A key file that is sealed after each start. `open` keeps the key derived from the passphrase only in memory."""

    writable = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = f"the file {path}, sealed by a passphrase"
        self._box: Box | None = None
        """The content at the time of `open`. Its salt and costs belong to `_passphrase_key`."""
        self._passphrase_key = b""

    @property
    def is_open(self) -> bool:
        return self._box is not None

    def open(self, passphrase: str) -> None:
        """Unseal with the passphrase; create a sealed file if there is none. Slow on purpose, to prevent guessing."""
        if not self.path.exists():
            self.seal({ids.new("kek"): envelope.new_key()}, passphrase)
        box = _BOX.decode(self.path.read_bytes())
        key = _stretched(passphrase, box)
        _opened(box, key)
        self._box, self._passphrase_key = box, key

    def seal(self, keys_by_id: Keys, passphrase: str) -> None:
        """Write the sealed file, if it does not exist."""
        box = Box(salt=os.urandom(16), content=b"")
        keys.create_private(self.path, _filled(box, _stretched(passphrase, box), keys_by_id))

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
        keys.write_private(self.path, _filled(self._box, self._passphrase_key, keys_by_id))

    def create(self, keys_by_id: Keys) -> None:
        """Check only that the file can be read: `open` has created it already."""
        self.read()


KeyFile = PlainFile | SealedFile


def chosen(settings: Settings) -> KeyFile:
    """Return the key file that the settings select."""
    if settings.custody_key_file is not None:
        return GivenFile(settings.custody_key_file)
    plain, sealed = settings.data_dir / PLAIN, settings.data_dir / SEALED
    if not settings.sealed and not sealed.exists():
        return PlainFile(plain)
    if plain.exists():
        raise custody.Unreadable(
            f"{plain} holds the key in the clear; seal it: gpuaas-platform custody seal --data {settings.data_dir}"
        )
    return SealedFile(sealed)


class KeyRing:
    def __init__(self, file: KeyFile) -> None:
        self.file = file
        self._keys: Keys = {}

    def key(self, key_id: str) -> bytes:
        """Return a key. Read the file again for an unknown key, because another process may have rotated the keys."""
        if key_id not in self._keys:
            self._keys = self.file.read()
        if key_id not in self._keys:
            raise custody.Unreadable(f"{self.file.path} does not hold key {key_id}; put the file back that does")
        return self._keys[key_id]

    def key_ids(self) -> list[str]:
        self._keys = self.file.read()
        return sorted(self._keys)

    def first(self) -> str:
        """Return the id of the first key; create it if there is no file. Concurrent processes get the same key."""
        if not self.key_ids():
            self.file.create({ids.new("kek"): envelope.new_key()})
        return self.key_ids()[0]

    def newest(self, present: str) -> str:
        """Return the id of a key that is newer than the current key: a new key, or one that operators added to the key
        file."""
        if self.file.writable:
            key_id = ids.new("kek")
            self.file.write({**self.file.read(), key_id: envelope.new_key()})
            return key_id
        key_id = self.key_ids()[-1]
        if key_id <= present:
            raise custody.Unreadable(
                f"{self.file.path} is given from outside and holds no newer key; "
                "add one to it (gpuaas-platform custody key --beside FILE), restart the server, then rotate"
            )
        return key_id

    def keep_only(self, key_id: str) -> bool:
        """Remove all keys except this one from the key file. Return False if operators manage the file: it is never
        written."""
        if self.file.writable:
            self.file.write({key_id: self.key(key_id)})
        return self.file.writable

    @contextlib.contextmanager
    def rotating(self) -> Iterator[None]:
        """Allow only one rotation at a time: a second one could remove the key that the first has just created."""
        if not self.file.writable:
            yield
            return
        with private.open_lock(self.file.path.with_suffix(".lock")) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise custody.Unavailable("another rotation of the key is under way") from error
            yield


def _stretched(passphrase: str, box: Box) -> bytes:
    costs, kind = (box.time_cost, box.memory_kib, box.parallelism), argon2.low_level.Type.ID
    return argon2.low_level.hash_secret_raw(passphrase.encode(), box.salt, *costs, envelope.KEY_BYTES, kind)


def _filled(box: Box, key: bytes, keys_by_id: Keys) -> bytes:
    content = envelope.encrypt(key, msgspec.json.encode(keys_by_id), _ABOUT)
    return msgspec.json.encode(msgspec.structs.replace(box, content=content))


def _opened(box: Box, key: bytes) -> Keys:
    try:
        return _KEYS.decode(envelope.decrypt(key, box.content, _ABOUT))
    except InvalidTag as error:
        raise custody.PassphraseWrong("this passphrase does not open the sealed key") from error
