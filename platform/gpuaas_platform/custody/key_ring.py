"""The key-encryption keys, stored apart from the database: the database alone reveals no secret.

There is one key, and during a rotation there are two. `embedded` stores in the database which is the present one.
"""

import contextlib
import fcntl
from collections.abc import Iterator

from gpuaas_platform.custody import envelope
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.key_files import KeyFile, Keys
from gpuaas_platform.kit import ids


class KeyRing:
    def __init__(self, file: KeyFile) -> None:
        self.file = file
        self._keys: Keys = {}

    def key(self, key_id: str) -> bytes:
        """Read the file again for an unknown key: another process may have rotated."""
        if key_id not in self._keys:
            self._keys = self.file.read()
        if key_id not in self._keys:
            raise custody.Unreadable(f"{self.file.path} does not hold key {key_id}; put the file back that does")
        return self._keys[key_id]

    def key_ids(self) -> list[str]:
        self._keys = self.file.read()
        return sorted(self._keys)

    def first(self) -> str:
        """The id of a key, made now if there is no file. Of two processes that make one, both get the same."""
        if not self.key_ids():
            self.file.create({ids.new("kek"): envelope.new_key()})
        return self.key_ids()[0]

    def newest(self, present: str) -> str:
        """A key that is younger than the present one: made now, or given from outside with the file."""
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
        """Remove the other keys. Return False for a file given from outside, which is never written."""
        if self.file.writable:
            self.file.write({key_id: self.key(key_id)})
        return self.file.writable

    @contextlib.contextmanager
    def rotating(self) -> Iterator[None]:
        """One rotation at a time: a second one could drop the key that the first has just made."""
        if not self.file.writable:
            yield
            return
        with open(self.file.path.with_suffix(".lock"), "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise custody.Unavailable("another rotation of the key is under way") from error
            yield
