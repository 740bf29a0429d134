"""Check the size of values of free form in a body. The contract declares it with `wire.json_bytes`."""

import functools
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from gpuaas_contract import errors, wire


class Bound(NamedTuple):
    path: tuple[str, ...]
    """Attributes from the body to the value."""
    bytes_max: int


@functools.cache
def bounds_of(kind: object) -> tuple[Bound, ...]:
    """Return the bounds that the contract declares in a request struct and the structs inside it."""
    return tuple(_bounds(msgspec.inspect.type_info(kind), (), frozenset()))


def check(body: object, bounds: tuple[Bound, ...], raw_bytes: int) -> None:
    """Refuse a body with a value over its bound. A short body has none, so most bodies cost one comparison."""
    for path, bytes_max in bounds:
        if raw_bytes <= bytes_max:
            continue
        for value in _values(body, path):
            size = len(msgspec.json.encode(value))
            if size > bytes_max:
                field = path[-1]
                text = f"`{field}` has {size} bytes as JSON; the limit is {bytes_max}."
                raise errors.ValidationFailed(text, details={"field": field})


def _bounds(kind: msgspec.inspect.Type, path: tuple[str, ...], parents: frozenset[type]) -> Iterator[Bound]:
    if isinstance(kind, msgspec.inspect.Metadata):
        bytes_max = (kind.extra_json_schema or {}).get(wire.BYTES_MAX)
        if bytes_max is not None:
            yield Bound(path, bytes_max)
        yield from _bounds(kind.type, path, parents)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for part in kind.types:
            yield from _bounds(part, path, parents)
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _bounds(kind.item_type, path, parents)
    elif isinstance(kind, msgspec.inspect.StructType) and kind.cls not in parents:
        for field in kind.fields:
            yield from _bounds(field.type, (*path, field.name), parents | {kind.cls})


def _values(holder: object, path: tuple[str, ...]) -> Iterator[object]:
    """Yield the values at the path that are present. Lists on the way stand for their items."""
    if isinstance(holder, list):
        for item in holder:
            yield from _values(item, path)
    elif not path:
        yield holder
    elif hasattr(holder, path[0]):
        yield from _values(getattr(holder, path[0]), path[1:])
