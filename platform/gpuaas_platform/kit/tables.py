"""Tables that store a resource as a JSON document, as sent in the API, plus the columns that SQL needs to find it.

The document is authoritative; each save copies values to the columns. Reads can pass documents on without decoding.
"""

import base64
import copy
import hashlib
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from gpuaas_platform.kit import db

Document = TypeVar("Document", bound=msgspec.Struct)


class Table(Generic[Document]):
    def __init__(self, name: str, kind: type[Document], key: str, /, **columns: Callable[[Document], object]) -> None:
        self.name, self.key = name, key
        self._columns = columns
        self._decoder = msgspec.json.Decoder(kind)
        self._document = "document"
        self.names = names = [key, *columns, "document"]
        changes = ", ".join(f"{column} = ${position}" for position, column in enumerate(names[1:], 2))
        self._insert_sql = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({db.marks(len(names))})"  # noqa: S608 - names are ours
        self._save_sql = f"UPDATE {name} SET {changes} WHERE {key} = $1"  # noqa: S608

    async def insert(self, tx: db.Tx, document: Document) -> None:
        await tx.run(self._insert_sql, *self.values(document))

    async def save(self, tx: db.Tx, document: Document) -> None:
        touched = await tx.run(self._save_sql, *self.values(document))
        if touched != 1:
            raise LookupError(f"{self.name}: nothing to save under {getattr(document, self.key)}")

    async def get(self, reader: db.Reader, key: str) -> Document | None:
        row = await reader.one(f"SELECT {self._document} FROM {self.name} WHERE {self.key} = $1", key)  # noqa: S608
        return self._decoder.decode(row[0]) if row is not None else None

    async def find(self, reader: db.Reader, where: str, *values: object) -> list[Document]:
        """Return the documents that match. `where` is all SQL after WHERE, including ORDER BY and LIMIT."""
        return [self._decoder.decode(text) for text in await self.find_encoded(reader, where, *values)]

    async def find_encoded(self, reader: db.Reader, where: str, *values: object) -> list[str]:
        """Return the same documents as `find`, as JSON text, not decoded."""
        sql = f"SELECT {self._document} FROM {self.name} WHERE {where}"  # noqa: S608
        return [row[0] for row in await reader.all(sql, *values)]

    async def keys(self, reader: db.Reader, where: str, *values: object) -> list[str]:
        """Return only the keys of the documents that match; `where` is as in `find`."""
        rows = await reader.all(f"SELECT {self.key} FROM {self.name} WHERE {where}", *values)  # noqa: S608
        return [str(row[0]) for row in rows]

    async def delete(self, tx: db.Tx, key: str) -> None:
        await tx.run(f"DELETE FROM {self.name} WHERE {self.key} = $1", key)  # noqa: S608

    def decode(self, text: str) -> Document:
        return self._decoder.decode(text)

    def values(self, document: Document) -> list[object]:
        """Return the values of the document's row, in the order of `names`."""
        copies = [column(document) for column in self._columns.values()]
        return [getattr(document, self.key), *copies, self._encoded(document)]

    def _encoded(self, document: Document) -> str:
        return msgspec.json.encode(document).decode()


class SplitTable(Table[Document]):
    """Stores large fields that rarely change in a second table, under the same key, so that a change of other fields
    does not write them again. Reads join the two halves of the JSON document, so neither half may be empty."""

    def __init__(
        self,
        name: str,
        kind: type[Document],
        key: str,
        second: str,
        second_fields: tuple[str, ...],
        added_fields: tuple[str, ...] = (),
        /,
        **columns: Callable[[Document], object],
    ) -> None:
        """`added_fields` are not stored here: `shown_with` adds them from other tables."""
        super().__init__(name, kind, key, **columns)
        self.second, self._second_fields = second, second_fields
        elsewhere = (*second_fields, *added_fields)
        self._first_fields = tuple(field for field in kind.__struct_fields__ if field not in elsewhere)
        # A subquery, not a join: for a page, PostgreSQL would read the second table from its first row.
        second_half = f"SELECT substr(second.document, 2) FROM {second} AS second WHERE second.{key} = {name}.{key}"  # noqa: S608
        self._document = f"substr(document, 1, length(document) - 1) || ',' || ({second_half})"

    async def insert(self, tx: db.Tx, document: Document) -> None:
        await super().insert(tx, document)
        sql = f"INSERT INTO {self.second} (document, {self.key}) VALUES ($1, $2)"  # noqa: S608
        await tx.run(sql, *self.second_values(document))

    async def change(self, tx: db.Tx, before: Document, after: Document) -> None:
        """Save `after` in place of `before`, the document as it was read in this transaction."""
        await super().save(tx, after)
        # Compare by identity: a copied struct shares its unchanged values; `==` would miss a change from 1 to True.
        if any(getattr(before, field) is not getattr(after, field) for field in self._second_fields):
            sql = f"UPDATE {self.second} SET document = $1 WHERE {self.key} = $2"  # noqa: S608
            await tx.run(sql, *self.second_values(after))

    def shown_with(self, **fields: str) -> Table[Document]:
        """Return the same table for reads only, with fields from other tables: name -> SQL of one JSON value."""
        shown = copy.copy(self)
        added = " ".join(f"""|| ',"{field}":' || COALESCE(({sql}), 'null')""" for field, sql in fields.items())
        whole = self._document
        shown._document = f"substr({whole}, 1, length({whole}) - 1) {added} || '}}'"
        return shown

    async def save(self, tx: db.Tx, document: Document) -> None:
        raise TypeError(f"{self.name} is saved by `change`, which compares with the document before")

    async def delete(self, tx: db.Tx, key: str) -> None:
        await super().delete(tx, key)
        await tx.run(f"DELETE FROM {self.second} WHERE {self.key} = $1", key)  # noqa: S608

    def second_values(self, document: Document) -> list[object]:
        """Return the document and the key of the row in the second table."""
        return [_fields(document, self._second_fields), getattr(document, self.key)]

    def _encoded(self, document: Document) -> str:
        return _fields(document, self._first_fields)


def _fields(document: msgspec.Struct, names: tuple[str, ...]) -> str:
    return msgspec.json.encode({name: getattr(document, name) for name in names}).decode()


_CHECK_BYTES = 4


class PageTokenInvalid(ValueError):
    """The page token was not issued for this list."""


def write_token(name: str, key: str) -> str:
    """Return a page token: the key that the page ended with, and a short digest to detect tokens of other lists."""
    return base64.urlsafe_b64encode(_check(name, key) + key.encode()).decode().rstrip("=")


def read_token(name: str, token: str) -> str:
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        key = raw[_CHECK_BYTES:].decode()
    except ValueError as error:
        raise PageTokenInvalid(token) from error
    # PostgreSQL refuses a NUL in a text. Anyone can compute the digest, so a token can contain any key.
    if raw[:_CHECK_BYTES] != _check(name, key) or "\0" in key:
        raise PageTokenInvalid(token)
    return key


def _check(name: str, key: str) -> bytes:
    return hashlib.blake2b(f"{name}:{key}".encode(), digest_size=_CHECK_BYTES).digest()
