"""The file of key-encryption keys, beside the database and never in it: whoever takes the database alone takes nothing.

It holds one key, and during a rotation two. `embedded_custody` says in the database which of them is the present one.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from gpuaas_platform.kit import custody, envelope, ids, keys

_FILE = msgspec.json.Decoder(dict[str, bytes])


class KeyRing:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys: dict[str, bytes] = {}

    def key(self, key_id: str) -> bytes:
        """Looks into the file again for a key it has not seen: another process may have rotated."""
        if key_id not in self._keys:
            self._read()
        if key_id not in self._keys:
            raise custody.Unreadable(f"{self._path} does not hold key {key_id}; put the file back that does")
        return self._keys[key_id]

    def key_ids(self) -> list[str]:
        self._read()
        return sorted(self._keys)

    def first(self) -> str:
        """The id of a key, made now if there is no file. Of two processes that make one, both get the same."""
        if not self.key_ids():
            self._create({ids.new("kek"): envelope.new_key()})
        return self.key_ids()[0]

    def add(self) -> str:
        key_id = ids.new("kek")
        self._read()
        self._write({**self._keys, key_id: envelope.new_key()})
        return key_id

    @contextlib.contextmanager
    def rotating(self) -> Iterator[None]:
        """One rotation at a time: a second one could drop the key that the first has just made."""
        with open(self._path.with_suffix(".lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise custody.Unavailable("another rotation of the key is under way") from error
            yield

    def keep_only(self, key_id: str) -> None:
        self._write({key_id: self.key(key_id)})

    def _read(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._keys = _FILE.decode(self._path.read_bytes())

    def _write(self, found: dict[str, bytes]) -> None:
        keys.write_private(self._path, msgspec.json.encode(found))
        self._keys = found

    def _create(self, found: dict[str, bytes]) -> None:
        """A link fails where a file is; a rename would take the place of a key that is already in use."""
        mine = self._path.with_suffix(f".{ids.new('new')}")
        keys.write_private(mine, msgspec.json.encode(found))
        with contextlib.suppress(FileExistsError):
            os.link(mine, self._path)
        mine.unlink()
