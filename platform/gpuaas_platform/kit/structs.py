"""Create one struct from the fields of another object."""

from typing import TypeVar

import msgspec

Made = TypeVar("Made", bound=msgspec.Struct)


def pick(kind: type[Made], source: object, /, **others: object) -> Made:
    """Return a `kind` with the values of the fields of the same name in `source`; `others` add or replace values."""
    same = {field: getattr(source, field) for field in kind.__struct_fields__ if hasattr(source, field)}
    return kind(**{**same, **others})
