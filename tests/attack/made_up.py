"""Make up values of the contract's types with one text in every place where the type allows it."""

import re
from typing import Any

from msgspec import inspect

MOMENT, DAY = "2030-01-01T00:00:00Z", "2030-01-01"
_LIKELY = ("succeeded", "active", "running", "ready")
"""Words of a lifecycle to prefer, so that commands that wait for an end find one."""
_PATTERNED = (
    *("a", "1", "1.0.0", "a.b", "a.b.c", "a" * 64, f"sha256:{'a' * 64}", "text/plain"),
    *(f"{'a' * 43}=", f"{'a' * 86}=="),  # a key and a signature in base64
)


def of(kind: inspect.Type, text: str) -> Any:
    """Return a JSON value of this type."""
    match kind:
        case inspect.Metadata():
            return of(kind.type, text)
        case inspect.UnionType():
            return of(next(part for part in kind.types if not isinstance(part, inspect.NoneType)), text)
        case inspect.StructType():
            tag = {kind.tag_field: kind.tag} if kind.tag_field else {}
            return {**tag, **{field.encode_name: of(field.type, text) for field in kind.fields}}
        case inspect.DictType():
            return {of(kind.key_type, text): of(kind.value_type, text)}
        case inspect.StrType():
            return text.ljust(kind.min_length or 0, "y") if kind.pattern is None else _matching(kind)
        case inspect.LiteralType():
            return next((word for word in _LIKELY if word in kind.values), kind.values[0])
        case inspect.IntType() | inspect.FloatType():
            return max(kind.ge or 0, 1)
        case inspect.AnyType():
            return text
    return _plain(kind, text)


def _plain(kind: inspect.Type, text: str) -> Any:
    item: inspect.Type | None = getattr(kind, "item_type", None)
    if item is not None:
        return [of(item, text)]
    names = {"BoolType": True, "DateTimeType": MOMENT, "DateType": DAY, "BytesType": "", "DecimalType": "1"}
    return names[type(kind).__name__]


def _matching(kind: inspect.StrType) -> str:
    fits = (text for text in _PATTERNED if re.search(kind.pattern or "", text) and len(text) >= (kind.min_length or 0))
    return next(fits)
