"""Make one struct from another."""

from typing import TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def pick(kind: type[Made], source: msgspec.Struct, /, **others: object) -> Made:
    """Return a `kind` with the fields that `source` has under the same name; `others` are added or take precedence."""
    same = {field: getattr(source, field) for field in kind.__struct_fields__ if hasattr(source, field)}
    return kind(**{**same, **others})
