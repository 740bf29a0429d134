"""Pages of lists that are not read from a document table: the same tokens as `tables` gives."""

from collections.abc import Callable
from typing import TypeVar

from gpuaas_contract.wire import Page, PageQuery

from gpuaas_platform.kit import tables

Item = TypeVar("Item")


def bounds(name: str, query: PageQuery) -> tuple[str, int]:
    """Return the key to read after and how many rows to read: one more than fit shows that there is a next page."""
    return position(name, query), query.page_size + 1


def position(name: str, query: PageQuery) -> str:
    """Return the key the page before ended with; empty for the first page."""
    return tables.read_token(name, query.page_token) if query.page_token else ""


def page(name: str, found: list[Item], limit: int, key: Callable[[Item], str]) -> Page[Item]:
    """Make the page of the rows read under `limit`, as `bounds` gave it."""
    if len(found) < limit:
        return Page(items=found)
    shown = found[: limit - 1]
    return Page(items=shown, next_page_token=tables.write_token(name, key(shown[-1])))
