"""Pages of lists, the same for every list: an opaque token contains where the next page starts. The time to read a page
does not grow with the number of pages before it."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from gpuaas_contract.wire import Page

from gpuaas_platform.kit import db, tables
from gpuaas_platform.kit.tables import Document, Table

Item = TypeVar("Item")
EncodedItem = TypeVar("EncodedItem", covariant=True)


class PageRequest(Protocol):
    """The query parameters that every list has."""

    @property
    def page_size(self) -> int: ...

    @property
    def page_token(self) -> str: ...


class EncodedPage(msgspec.Struct, Generic[EncodedItem], frozen=True):
    """A `Page` whose items are already JSON: documents go from the store to the response without being decoded."""

    items: msgspec.Raw
    next_page_token: str | None = None


async def page(
    name: str,
    query: PageRequest,
    read: Callable[[str, int], Awaitable[Sequence[Item]]],
    key: Callable[[Item], str],
    *,
    start: str = "",
) -> Page[Item]:
    """Read one page of the list `name`.

    `read` gets the key of the last item of the previous page (`start` for the first page) and how many items to
    return. That is one more than the page size: if it returns all of them, there is a next page."""
    size = query.page_size
    items = list(await read(position(name, query) or start, size + 1))
    if len(items) <= size:
        return Page(items=items)
    return Page(items=items[:size], next_page_token=tables.write_token(name, key(items[size - 1])))


async def documents(
    reader: db.Reader, table: Table[Document], query: PageRequest, where: str, *values: object
) -> Page[Document]:
    """Return one page of a document table, ordered by id, which is the order of creation."""
    sql = _where(table.key, where, len(values))
    return await page(
        table.name,
        query,
        lambda after, limit: table.find(reader, sql, *values, after, limit),
        lambda document: str(getattr(document, table.key)),
    )


async def encoded(
    reader: db.Reader, table: Table[Document], query: PageRequest, where: str, *values: object
) -> EncodedPage[Document]:
    """Return the same page as `documents` does, with the items as JSON, not decoded."""
    size, sql = query.page_size, _where(table.key, where, len(values))
    texts = await table.find_encoded(reader, sql, *values, position(table.name, query), size + 1)
    following = None
    if len(texts) > size:
        following = tables.write_token(table.name, str(getattr(table.decode(texts[size - 1]), table.key)))
    return EncodedPage(msgspec.Raw(f"[{','.join(texts[:size])}]"), following)


def position(name: str, query: PageRequest) -> str:
    """Return the key of the last item of the previous page; empty for the first page."""
    return tables.read_token(name, query.page_token) if query.page_token else ""


@functools.lru_cache(maxsize=256)
def _where(key: str, where: str, position: int) -> str:
    return f"{where} AND {key} > ${position + 1} ORDER BY {key} LIMIT ${position + 2}"
