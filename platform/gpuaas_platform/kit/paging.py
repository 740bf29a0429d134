"""Pages of lists, the same for every list: an opaque token contains where the next page starts. The time to read a page
does not grow with the number of pages before it."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec
from gpuaas_contract.wire import Page

from gpuaas_platform.kit import db, tables
from gpuaas_platform.kit.tables import Document, Table

LAST = "zz"
"""A key after all ids in any collation of PostgreSQL: ids begin with their kind, such as `op_`."""

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
    start: str | None = None,
) -> Page[Item]:
    """Read one page of the list `name`.

    `read` gets the key of the last item of the previous page (`start` for the first page; without it, the end at which
    the order of the query begins) and how many items to return. That is one more than the page size: if it returns all
    of them, there is a next page."""
    size = query.page_size
    start = _start(query) if start is None else start
    items = list(await read(position(name, query) or start, size + 1))
    if len(items) <= size:
        return Page(items=items)
    return Page(items=items[:size], next_page_token=next_page(name, query, key(items[size - 1])))


async def documents(
    reader: db.Reader, table: Table[Document], query: PageRequest, where: str, *values: object
) -> Page[Document]:
    """Return one page of a document table, ordered by id, which is the order of creation."""
    newest = is_newest_first(query)
    sql = _where(table.key, where, len(values), newest=newest)
    return await page(
        table.name,
        query,
        lambda after, limit: table.find(reader, sql, *values, after, limit),
        lambda document: str(getattr(document, table.key)),
        start=LAST if newest else "",
    )


async def encoded(
    reader: db.Reader, table: Table[Document], query: PageRequest, where: str, *values: object
) -> EncodedPage[Document]:
    """Return the same page as `documents` does, with the items as JSON, not decoded."""
    size, newest = query.page_size, is_newest_first(query)
    sql = _where(table.key, where, len(values), newest=newest)
    place = position(table.name, query) or (LAST if newest else "")
    texts = await table.find_encoded(reader, sql, *values, place, size + 1)
    following = None
    if len(texts) > size:
        following = next_page(table.name, query, str(getattr(table.decode(texts[size - 1]), table.key)))
    return EncodedPage(msgspec.Raw(f"[{','.join(texts[:size])}]"), following)


def is_newest_first(query: PageRequest) -> bool:
    """Return whether the caller reads the list from its end. Most lists have no such parameter."""
    return getattr(query, "order", "") == "newest"


def position(name: str, query: PageRequest) -> str:
    """Return the key of the last item of the previous page; empty for the first page."""
    return tables.read_token(_name(name, query), query.page_token) if query.page_token else ""


def next_page(name: str, query: PageRequest, key: str) -> str:
    """Return the token of the page after the item with this key. It is refused by the other order of the list."""
    return tables.write_token(_name(name, query), key)


def ordered(key: str, where: str, position: int, query: PageRequest) -> str:
    """Return the SQL after WHERE of one page, in the order of the query. `where` has `position` values."""
    return _where(key, where, position, newest=is_newest_first(query))


def _start(query: PageRequest) -> str:
    return LAST if is_newest_first(query) else ""


def _name(name: str, query: PageRequest) -> str:
    return f"{name} newest" if is_newest_first(query) else name


@functools.lru_cache(maxsize=256)
def _where(key: str, where: str, position: int, *, newest: bool) -> str:
    beyond, order = ("<", f"{key} DESC") if newest else (">", key)
    return f"{where} AND {key} {beyond} ${position + 1} ORDER BY {order} LIMIT ${position + 2}"
