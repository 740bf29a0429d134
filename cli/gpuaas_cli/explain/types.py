"""Pure: the types of the contract in words: what a value is, which are permitted, how long or large it may be."""

from collections.abc import Callable
from typing import Any

from gpuaas_contract import meanings
from msgspec import inspect as shapes

_WORDS: dict[type[shapes.Type], str] = {
    shapes.StrType: "text",
    shapes.IntType: "integer",
    shapes.FloatType: "number",
    shapes.BoolType: "true or false",
    shapes.DateTimeType: "moment",
    shapes.BytesType: "bytes in base64",
    shapes.NoneType: "null",
    shapes.AnyType: "any value",
    shapes.LiteralType: "text",
}
_UNITS: dict[type[shapes.Type], str] = {shapes.StrType: "characters", shapes.BytesType: "bytes"}


def text(kind: shapes.Type, name_of: Callable[[type], str]) -> str:
    if isinstance(kind, shapes.Metadata):
        return text(kind.type, name_of)
    if isinstance(kind, shapes.StructType):
        return name_of(kind.cls)
    if isinstance(kind, shapes.ListType):
        return f"list of {text(kind.item_type, name_of)}"
    if isinstance(kind, shapes.DictType):
        return f"map of {text(kind.value_type, name_of)}"
    if isinstance(kind, shapes.UnionType):
        return " or ".join(text(item, name_of) for item in kind.types)
    return _WORDS.get(type(kind), type(kind).__name__.removesuffix("Type").lower())


def values(kind: shapes.Type) -> list[str]:
    if isinstance(kind, shapes.LiteralType):
        return [str(value) for value in kind.values]
    return [value for part in meanings.parts(kind) for value in values(part)]


def limits(kind: shapes.Type) -> str:
    """As the contract words it, else by its numbers."""
    if isinstance(kind, shapes.Metadata):
        text_of = (kind.extra_json_schema or {}).get("description", "")
        return str(text_of) or limits(kind.type)
    if isinstance(kind, shapes.StrType | shapes.BytesType | shapes.ListType | shapes.DictType):
        return _range(kind.min_length, kind.max_length, _UNITS.get(type(kind), "items"))
    if isinstance(kind, shapes.IntType | shapes.FloatType):
        return _range(kind.ge, kind.le, "")
    if isinstance(kind, shapes.UnionType):
        return next(filter(None, map(limits, kind.types)), "")
    return ""


def _range(least: Any, most: Any, unit: str) -> str:
    after = f" {unit}" if unit else ""
    if least is not None and most is not None:
        return f"{least:g} to {most:g}{after}" if isinstance(least, float) else f"{least} to {most}{after}"
    if least is not None:
        return f"{least} or more{after}"
    return f"at most {most}{after}" if most is not None else ""
