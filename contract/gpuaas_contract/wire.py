"""Base types of everything that is sent or received. All other modules of the contract use them."""

import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar, dataclass_transform

import msgspec


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class WireMeta(msgspec.StructMeta):
    """Make every struct of the contract frozen and keyword-only, so that fields can be added anywhere."""

    def __new__(mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> "WireMeta":
        options = {"kw_only": True, "frozen": True, **options}
        return super().__new__(mcls, name, bases, namespace, **options)


class Wire(msgspec.Struct, metaclass=WireMeta):
    """Base of all types that are sent over the API, as JSON."""


class Request(msgspec.Struct, metaclass=WireMeta, forbid_unknown_fields=True):
    """A value that enters the platform. Unknown fields are refused, so that a typo is noticed."""


class NoBody(Request):
    """The request has no body."""


class Path(msgspec.Struct, metaclass=WireMeta):
    """Base of the types with the parameters in a URL path; it has none."""


class Query(msgspec.Struct, metaclass=WireMeta, forbid_unknown_fields=True):
    """Base of the types with the query parameters of a URL, after the question mark."""


class NoQuery(Query):
    """The request takes no parameters."""


# In Python `$` also matches before a last newline; (?!\n) leaves that out and means nothing elsewhere.
Name = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9_-]+(?!\n)$",
        description="A name has 1 to 63 letters, digits, hyphens or underscores.",
    ),
]
Label = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*(?!\n)$",
        description="1 to 63 letters, digits, dots, hyphens or underscores; the first is a letter or digit.",
    ),
]
OptionalLabel = Annotated[
    str,
    msgspec.Meta(
        max_length=63,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9._-]*)?(?!\n)$",
        description="Up to 63 letters, digits, dots, hyphens or underscores; the first is a letter or digit.",
    ),
]

Id = Annotated[str, msgspec.Meta(max_length=128, description="An id or a name has at most 128 characters.")]
"""Id or name of an existing resource. The platform looks the resource up, so the form of the text is not checked."""
ShortText = Annotated[str, msgspec.Meta(max_length=200, description="At most 200 characters.")]
LongText = Annotated[str, msgspec.Meta(max_length=4000, description="At most 4000 characters.")]

BYTES_MAX = "x-gpuaas-bytes-max"
"""In the schema of a value of free form: how many bytes it may have as JSON. The edge of the platform checks it."""


def json_bytes(bytes_max: int) -> msgspec.Meta:
    """Bound a value of free form: `Annotated[dict[str, Any], json_bytes(8192)]`."""
    return msgspec.Meta(extra_json_schema={BYTES_MAX: bytes_max})


Inputs = Annotated[dict[str, Any], json_bytes(65_536)]
"""Inputs of a deploy, an upgrade or an action. The app's schema checks their form."""
Secret = Annotated[str, msgspec.Meta(extra={"secret": True})]
"""A value that no one reads, such as a password. It may contain every character except NUL; see `characters`."""

Timestamp = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
"""A moment with its offset from UTC, as in RFC 3339. The platform sends UTC."""

Serial = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^[0-9]{1,20}(?!\n)$",
        description="A decimal number of up to 64 bits, as text: JSON readers round large numbers.",
    ),
]

PAGE_SIZE_MAX = 500
WAIT_S_MAX = 30
PageSize = Annotated[int, msgspec.Meta(ge=1, le=PAGE_SIZE_MAX, description=f"A number from 1 to {PAGE_SIZE_MAX}.")]
WaitSeconds = Annotated[float, msgspec.Meta(ge=0, le=WAIT_S_MAX, description=f"From 0 to {WAIT_S_MAX} seconds.")]
"""How long a long poll may wait for an answer."""


class PageQuery(Query):
    page_size: PageSize = 100
    """Largest number of items in the answer."""
    page_token: str = ""
    """`next_page_token` of the page before; empty for the first page."""


Order = Literal["oldest", "newest"]


class OrderedQuery(PageQuery):
    """The parameters of a list that grows forever: people read its end."""

    order: Order = "oldest"
    """Which items come first. A page token belongs to the order of its list."""


Item = TypeVar("Item")


class Page(msgspec.Struct, Generic[Item], metaclass=WireMeta):
    """One page of a list."""

    items: list[Item]
    next_page_token: str | None = None
    """Token of the next page: send it as `page_token` to get that page; none on the last page."""
