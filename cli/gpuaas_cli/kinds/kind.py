"""What one kind of thing is to the commands: its names, its endpoints, which of its things are gone, its columns."""

import dataclasses
import functools
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.instances import INSTANCE_GET
from msgspec import inspect as shapes

from gpuaas_cli.client.session import Session
from gpuaas_cli.output import Table, table


@dataclass(frozen=True)
class Filters:
    instance: str = ""
    correlation: str = ""
    everything: bool = False
    """Include what is gone: deleted instances, removed members, released allocations, answered previews."""
    query: Mapping[str, Any] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)


AnyEndpoint = Endpoint[Any, Any]
Fetch = Callable[[Session, AnyEndpoint, Filters], Awaitable[Sequence[Any]]]


def item_of(response: Any) -> Any:
    """Return the item type of a list response, or the type itself: `Node` for a page of nodes and for a node."""
    return _item_of(response)


@functools.cache
def _item_of(response: Any) -> Any:
    info = shapes.type_info(response)
    if isinstance(info, shapes.StructType):
        items = next((item.type for item in info.fields if item.name == "items"), None)
        if isinstance(items, shapes.ListType) and isinstance(items.item_type, shapes.StructType):
            return items.item_type.cls
    return response


async def listed(session: Session, endpoint: AnyEndpoint, filters: Filters) -> Sequence[Any]:
    return await session.every(endpoint, query=dict(filters.query), **filters.path)


@dataclass(frozen=True)
class Kind:
    listing: AnyEndpoint
    """The endpoint that lists the resources."""
    cells: Mapping[str, Callable[[Any], str]] = field(default_factory=dict)
    """Functions for columns that are not an attribute."""
    name: str = ""
    """The attribute by which other commands name a resource; by default that of the first column."""
    ids: str = ""
    """Other attributes that match NAME in `gpuaas get KIND NAME`, if no endpoint returns one resource."""
    listing_all: AnyEndpoint | None = None
    """The endpoint that also lists deleted resources of this kind, if it is not the usual one."""
    getting: AnyEndpoint | None = None
    """The endpoint that returns one resource; its last parameter takes a name or an id."""
    is_gone: Callable[[Any], bool] | None = None
    """Whether a resource is shown only with --all."""
    live: Mapping[str, str] = field(default_factory=dict)
    """Query parameters that exclude deleted and ended resources from the list."""
    by_instance: str = ""
    """The query parameter that filters by instance."""
    by_correlation: bool = False
    fetch_rows: Fetch = listed
    if_empty: str = ""
    """The next command to suggest if the list is empty."""
    plural: str = ""
    words: str = ""
    """Other names, in addition to the plural and the singular."""
    columns: str = ""
    """In the syntax of `output.table`."""

    @property
    def table(self) -> Table:
        return table(self.columns, self.name, **self.cells)

    @property
    def known_by(self) -> tuple[str, ...]:
        return (str(self.table.name), *self.ids.split())

    @property
    def struct(self) -> Any:
        """The type of the resources."""
        return item_of(self.listing.response)

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.plural, self.plural.removesuffix("s"), *self.words.split()})

    @property
    def of_instance(self) -> bool:
        """Whether resources can be listed only for one instance."""
        return "{instance_id}" in self.listing.path

    @property
    def hides(self) -> bool:
        return self.is_gone is not None or self.listing_all is not None or bool(self.live)

    async def fetch(self, session: Session, filters: Filters, endpoint: AnyEndpoint | None = None) -> Sequence[Any]:
        """Return the resources. `endpoint` replaces the kind's own list, for example to list those of the platform."""
        query, path = dict(filters.query), dict(filters.path)
        if not filters.everything:
            query = {**self.live, **query}
        if filters.instance and self.of_instance:
            path["instance_id"] = filters.instance
        elif filters.instance and self.by_instance:
            result = await session.call(INSTANCE_GET, instance_id=filters.instance)
            query[self.by_instance] = result.instance_id
        if self.by_correlation and filters.correlation:
            query["correlation_id"] = filters.correlation
        asked = Filters(filters.instance, filters.correlation, filters.everything, query, path)
        everywhere = self.listing_all if filters.everything else None
        rows = await self.fetch_rows(session, endpoint or everywhere or self.listing, asked)
        if filters.everything or self.is_gone is None:
            return rows
        return [row for row in rows if not self.is_gone(row)]


def declared(text: str | None, kinds: Mapping[str, Kind]) -> Iterator[Kind]:
    """Yield the kinds with the names and columns in the docstring of their module: `members mem: STATUS …`."""
    rows = re.findall(r"^([a-z-]+)([a-z -]*): (.*(?:\n +.*)*)", text or "", re.MULTILINE)
    of_plural = {plural: {"words": words, "columns": columns} for plural, words, columns in rows}
    for plural, kind in kinds.items():
        yield dataclasses.replace(kind, plural=plural, **of_plural[plural])
