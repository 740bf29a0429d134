"""Read the texts below the fields of a struct from its source, because Python does not store them at run time. They are
shown in the OpenAPI and AsyncAPI documents and by `gpuaas explain`."""

import ast
import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import inspect as shapes

_OURS = __name__.partition(".")[0]


def of(struct: Any) -> dict[str, str]:
    """Return the text of each field; a struct inherits the texts of the struct that it extends."""
    texts: dict[str, str] = {}
    for base in reversed(getattr(struct, "__origin__", struct).__mro__):
        if base.__module__.startswith(_OURS):
            texts |= _written_under(base.__module__).get(base.__name__, {})
    return texts


def described(schemas: Mapping[str, dict[str, Any]], kinds: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """Return the schemas with field texts. In a property's description, the field text comes before the text of its
    type."""
    named = {_schema_name(struct.cls): struct for kind in kinds for struct in _held(shapes.type_info(kind), set())}
    return {name: _with_meanings(schema, _by_property(named[name])) for name, schema in schemas.items()}


def parts(kind: shapes.Type) -> tuple[shapes.Type, ...]:
    """Return the types inside a list, dict or union; empty for all other types, also for structs."""
    if isinstance(kind, shapes.Metadata):
        return (kind.type,)
    if isinstance(kind, shapes.ListType):
        return (kind.item_type,)
    if isinstance(kind, shapes.DictType):
        return (kind.value_type,)
    return kind.types if isinstance(kind, shapes.UnionType) else ()


def structs(kind: shapes.Type) -> Iterator[shapes.StructType]:
    """Yield the structs in this type, without the structs in their fields."""
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
    """Return the schema name that msgspec uses: `Page_Node_` for `Page[Node]`."""
    arguments = [argument.__name__ for argument in getattr(struct, "__args__", ())]
    return f"{struct.__name__}_{'_'.join(arguments)}_" if arguments else struct.__name__


def _by_property(struct: shapes.StructType) -> dict[str, str]:
    """Return the texts by field name on the wire."""
    texts = of(struct.cls)
    return {field.encode_name: texts[field.name] for field in struct.fields if field.name in texts}


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
