"""Custody in the platform's database: it contains only ciphertext. The key-encryption key is stored elsewhere.

A rotation replaces that key. Values stay readable at all times, even if the rotation is interrupted:

1. a new key is added to the file;
2. the database names it as the current key: after this commit no new value uses the old key;
3. existing data keys are encrypted with the new key, in batches, one transaction each;
4. keys that are no longer used are removed from the file.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from gpuaas_platform.custody import envelope, key_files
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.key_files import KeyRing, SealedFile
from gpuaas_platform.kit import db
from gpuaas_platform.kit.settings import Settings

_BATCH = 100
_COLUMNS = ", ".join(envelope.Sealed._fields)
_INSERT = f"INSERT INTO custody ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5)"  # noqa: S608 - names are ours
_SELECT = f"SELECT {_COLUMNS} FROM custody WHERE"  # noqa: S608
_PRESENT = "SELECT key_id FROM custody_key"


@dataclass(frozen=True)
class Counted:
    """The number of values in custody for each key that wraps them."""

    present: str
    """Id of the key that wraps new values; empty before the first value."""
    values_by_key: dict[str, int]


class EmbeddedCustody:
    def __init__(self, database: db.Database, ring: KeyRing, *, batch: int = _BATCH) -> None:
        self._database, self._ring, self._batch = database, ring, batch

    @classmethod
    def opened(cls, settings: Settings, database: db.Database) -> "EmbeddedCustody":
        return cls(database, KeyRing(key_files.chosen(settings)))

    async def put(self, ref: str, value: bytes) -> int:
        async def use_case(tx: db.Tx) -> int:
            key_id = await self._present_key_id(tx)
            row = await tx.one("SELECT coalesce(max(version), 0) FROM custody WHERE ref = $1", ref)
            version = int(row[0]) + 1 if row is not None else 1
            await tx.run(_INSERT, *envelope.seal(ref, version, value, key_id, self._ring.key(key_id)))
            return version

        return await self._write(use_case)

    async def get(self, ref: str, version: int) -> bytes:
        sealed = await self._stored(ref, version)
        try:
            return envelope.unseal(sealed, self._ring.key(sealed.key_id))
        except custody.Unreadable:
            # The key may be gone because a rotation has just ended. Read the value again.
            again = await self._stored(ref, version)
            if again.key_id == sealed.key_id:
                raise
            return envelope.unseal(again, self._ring.key(again.key_id))

    async def delete(self, ref: str) -> None:
        await self._write(lambda tx: tx.run("DELETE FROM custody WHERE ref = $1", ref))

    async def check(self) -> None:
        if self._is_sealed():
            self._ring.file.read()

    async def status(self) -> custody.Status:
        return custody.Status("embedded", self._is_sealed(), self._ring.file.description)

    async def unseal(self, passphrase: str) -> None:
        file = self._ring.file
        if not isinstance(file, SealedFile) or file.is_open:
            return
        if not file.path.exists() and await self._database.reader.one(_PRESENT):
            raise custody.Unreadable(f"{file.path} is not there, and values are sealed by its key; put it back")
        await asyncio.to_thread(file.open, passphrase)

    async def counted(self) -> Counted:
        present = await self._database.reader.one(_PRESENT)
        rows = await self._database.reader.all("SELECT key_id, count(*) FROM custody GROUP BY key_id ORDER BY key_id")
        return Counted(str(present[0]) if present is not None else "", {row[0]: row[1] for row in rows})

    async def rotate(self) -> AsyncGenerator[str, None]:
        """Replace the current key. Yields a message after each step that is stored durably.

        If an earlier rotation was interrupted, it is finished first."""
        with self._ring.rotating():
            if self._ring.file.writable:
                async for message in self._finish():
                    yield message
            key_id = self._ring.newest(await self._write(self._present_key_id))
            yield f"key {key_id} is in the file"
            await self._write(lambda tx: tx.run("UPDATE custody_key SET key_id = $1", key_id))
            yield f"key {key_id} encrypts the secrets that are stored from now on"
            async for message in self._finish():
                yield message

    async def _stored(self, ref: str, version: int) -> envelope.Sealed:
        try:
            row = await self._database.reader.one(f"{_SELECT} ref = $1 AND version = $2", ref, version)
        except db.Unavailable as error:
            raise custody.Unavailable(str(error)) from error
        if row is None:
            raise custody.SecretMissing(f"there is no version {version} of {ref}")
        return _sealed(row)

    async def _finish(self) -> AsyncGenerator[str, None]:
        if len(self._ring.key_ids()) < 2:
            return
        key_id = await self._write(self._present_key_id)
        while count := await self._write(lambda tx: self._rewrap_some(tx, key_id)):
            yield f"{count} data keys are wrapped again"
        if self._ring.keep_only(key_id):
            yield f"key {key_id} is the only one in the file"
        else:
            yield f"key {key_id} is the only one in use; take the others out of {self._ring.file.path}"

    async def _present_key_id(self, tx: db.Tx) -> str:
        row = await tx.one(_PRESENT)
        if row is not None:
            return str(row[0])
        key_id = self._ring.first()
        await tx.run("INSERT INTO custody_key (only_row, key_id) VALUES (1, $1)", key_id)
        return key_id

    async def _rewrap_some(self, tx: db.Tx, key_id: str) -> int:
        rows = await tx.all(f"{_SELECT} key_id < $1 OR key_id > $1 LIMIT $2", key_id, self._batch)
        for sealed in map(_sealed, rows):
            renewed = envelope.rewrapped(sealed, self._ring.key(sealed.key_id), key_id, self._ring.key(key_id))
            update = "UPDATE custody SET key_id = $3, wrapped_key = $4 WHERE ref = $1 AND version = $2"
            await tx.run(update, sealed.ref, sealed.version, key_id, renewed.wrapped_key)
        return len(rows)

    def _is_sealed(self) -> bool:
        return isinstance(self._ring.file, SealedFile) and not self._ring.file.is_open

    async def _write(self, use_case: db.UseCase[db.Result]) -> db.Result:
        try:
            return await self._database.write(use_case)
        except db.Unavailable as error:
            raise custody.Unavailable(str(error)) from error


def _sealed(row: db.Row) -> envelope.Sealed:
    return envelope.Sealed(row[0], row[1], row[2], row[3], row[4])
