"""Pages of lists that have no document table: the same tokens and limits as everywhere else."""

from collections.abc import Callable
from typing import TypeVar

from gpuaas_contract.wire import Page, PageQuery

from gpuaas_platform.kit import tables

Item = TypeVar("Item")


def bounds(name: str, query: PageQuery) -> tuple[str, int]:
    """After which key to look, and for how many: one more than fit, to know whether there is a next page."""
    after = tables.read_token(name, query.page_token) if query.page_token else ""
    return after, max(1, min(query.page_size, tables.PAGE_MAX)) + 1


def page(name: str, found: list[Item], limit: int, key: Callable[[Item], str]) -> Page[Item]:
    if len(found) < limit:
        return Page(items=found)
    shown = found[: limit - 1]
    return Page(items=shown, next_page_token=tables.write_token(name, key(shown[-1])))
