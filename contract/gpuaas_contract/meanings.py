"""What the contract says of a field, in the text under it: read from the source, for Python itself does not keep it.

The documents that others read are made with it, and so is `gpuaas explain`.
"""

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import inspect as shapes

_OURS = __name__.partition(".")[0]


def of(struct: Any) -> dict[str, str]:
    """By field; what a struct does not say is said by the one it extends."""
    found: dict[str, str] = {}
    for base in reversed(getattr(struct, "__origin__", struct).__mro__):
        if base.__module__.startswith(_OURS):
            found |= _written_under(base.__module__).get(base.__name__, {})
    return found


def described(schemas: Mapping[str, dict[str, Any]], kinds: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """The schemas of these types and all they hold, each property with its meaning before what its type says of it."""
    named = {_schema_name(struct.cls): struct for kind in kinds for struct in _held(shapes.type_info(kind), set())}
    return {name: _with_meanings(schema, _by_property(named[name])) for name, schema in schemas.items()}


def parts(kind: shapes.Type) -> tuple[shapes.Type, ...]:
    """Types that a value of this one consists of; a struct is whole."""
    if isinstance(kind, shapes.Metadata):
        return (kind.type,)
    if isinstance(kind, shapes.ListType):
        return (kind.item_type,)
    if isinstance(kind, shapes.DictType):
        return (kind.value_type,)
    return kind.types if isinstance(kind, shapes.UnionType) else ()


def structs(kind: shapes.Type) -> Iterator[shapes.StructType]:
    """The structs a value of this type holds, not going into them."""
    if isinstance(kind, shapes.StructType):
        yield kind
    for part in parts(kind):
        yield from structs(part)


def _held(kind: shapes.Type, seen: set[Any]) -> Iterator[shapes.StructType]:
    for struct in structs(kind):
        if struct.cls not in seen:
            seen.add(struct.cls)
            yield struct
            for field in struct.fields:
                yield from _held(field.type, seen)


def _schema_name(struct: Any) -> str:
    """As msgspec calls it: `Page[Node]` is `Page_Node_`."""
    arguments = [argument.__name__ for argument in getattr(struct, "__args__", ())]
    return f"{struct.__name__}_{'_'.join(arguments)}_" if arguments else struct.__name__


def _by_property(struct: shapes.StructType) -> dict[str, str]:
    """As the wire calls the fields."""
    said = of(struct.cls)
    return {field.encode_name: said[field.name] for field in struct.fields if field.name in said}


def _with_meanings(schema: dict[str, Any], meanings: Mapping[str, str]) -> dict[str, Any]:
    properties = {
        name: {**shape, "description": _both(meanings[name], shape.get("description", ""))}
        if name in meanings
        else shape
        for name, shape in schema.get("properties", {}).items()
    }
    return {**schema, "properties": properties} if properties else schema


def _both(meaning: str, rule: str) -> str:
    return f"{meaning} {rule}".rstrip()


@functools.cache
def _written_under(module: str) -> dict[str, dict[str, str]]:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: dict(_field_texts(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _field_texts(struct: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, after in zip(struct.body, struct.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            yield field.target.id, " ".join(str(after.value.value).split())
