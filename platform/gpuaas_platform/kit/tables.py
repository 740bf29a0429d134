"""Tables that keep a resource's wire document beside the columns SQL needs to find it.

The document is the truth; columns are copies made on every save. Reads can pass documents on without decoding them.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from gpuaas_platform.kit import db

Document = TypeVar("Document", bound=msgspec.Struct)


class Table(Generic[Document]):
    def __init__(self, name: str, kind: type[Document], key: str, /, **columns: Callable[[Document], Any]) -> None:
        self._name, self._key = name, key
        self._columns = columns
        self._decoder = msgspec.json.Decoder(kind)
        names = [key, *columns, "document"]
        marks = ", ".join(f"${position}" for position in range(1, len(names) + 1))
        changes = ", ".join(f"{column} = ${position}" for position, column in enumerate(names[1:], 2))
        self._insert_sql = f"INSERT INTO {name} ({', '.join(names)}) VALUES ({marks})"  # noqa: S608 - names are ours
        self._save_sql = f"UPDATE {name} SET {changes} WHERE {key} = $1"  # noqa: S608
        self._get_sql = f"SELECT document FROM {name} WHERE {key} = $1"  # noqa: S608

    async def insert(self, tx: db.Tx, document: Document) -> None:
        await tx.run(self._insert_sql, *self._values(document))

    async def save(self, tx: db.Tx, document: Document) -> None:
        touched = await tx.run(self._save_sql, *self._values(document))
        if touched != 1:
            raise LookupError(f"{self._name}: nothing to save under {getattr(document, self._key)}")

    async def get(self, reader: db.Reader, key: str) -> Document | None:
        row = await reader.one(self._get_sql, key)
        return self._decoder.decode(row[0]) if row is not None else None

    async def find(self, reader: db.Reader, where: str, *values: Any) -> list[Document]:
        """`where` is everything after WHERE, ORDER BY and LIMIT included."""
        sql = f"SELECT document FROM {self._name} WHERE {where}"  # noqa: S608
        return [self._decoder.decode(row[0]) for row in await reader.all(sql, *values)]

    def _values(self, document: Document) -> list[Any]:
        copies = [column(document) for column in self._columns.values()]
        return [getattr(document, self._key), *copies, msgspec.json.encode(document).decode()]


PAGE_MAX = 500


async def page(
    table: Table[Document], reader: db.Reader, where: str, values: list[Any], *, size: int, token: str
) -> tuple[list[Document], str | None]:
    """One page in order of id, which is order of creation. Its cost does not grow with what lies before it."""
    size = max(1, min(size, PAGE_MAX))
    key = table._key
    position = len(values)
    clause = f"{where} AND {key} > ${position + 1} ORDER BY {key} LIMIT ${position + 2}"
    found = await table.find(reader, clause, *values, token, size + 1)
    if len(found) <= size:
        return found, None
    return found[:size], str(getattr(found[size - 1], key))
