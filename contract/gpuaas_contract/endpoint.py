"""The form of one row of the endpoint table."""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from gpuaas_contract.errors import (
    AUTHENTICATED,
    EVERYWHERE,
    GUARDED,
    MUTATION,
    REPEATED_BY_KEY,
    ApiError,
    NameAmbiguous,
)
from gpuaas_contract.wire import NoQuery, Query

RequestBody = TypeVar("RequestBody")
Answer = TypeVar("Answer")

Audience = Literal["caller", "node", "public"]
"""Who authenticates: a person or service account, a node, or nobody."""
Repeat = Literal["key", "natural"]
"""How a repeated mutation stays one: by X-Idempotency-Key, or because its content makes it so (PUT, epochs)."""


@dataclass(frozen=True)
class Endpoint(Generic[RequestBody, Answer]):
    name: str
    """Stable dotted name: operation id, audit action and metric label."""
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    summary: str
    request: type[RequestBody]
    response: type[Answer]
    permission: str = ""
    audience: Audience = "caller"
    status: int = 200
    query: type[Query] = NoQuery
    repeat: Repeat = "key"
    audited: bool = True
    """Leaves an audit row; off only for the steady chatter of nodes and controllers."""
    secret_answer: bool = False
    """The answer holds a secret: it is given once and never stored for a replay."""
    streams: bool = False
    """The answer is text/event-stream and has no end; `response` is the form of each event's data."""
    media_type: str = "application/json"
    """Of the answer. Any other is sent as a stream that ends; errors stay problem documents."""
    guarded: bool = False
    """Changes only what the caller has read: If-Match with the ETag that GET on the same path answers with."""
    errors: tuple[type[ApiError], ...] = ()
    example: dict[str, Any] = field(default_factory=dict)
    """One request body that works on a fresh local cloud, as JSON values."""

    @property
    def mutates(self) -> bool:
        return self.method != "GET"

    @property
    def takes_bytes(self) -> bool:
        """The body is raw and read as a stream, not as JSON."""
        return self.request is bytes

    @property
    def tagged(self) -> bool:
        """Answers with an ETag: one resource that knows its revision."""
        return self.method == "GET" and "revision" in getattr(self.response, "__struct_fields__", ())

    def possible_errors(self) -> tuple[type[ApiError], ...]:
        found = [*EVERYWHERE, *self.errors]
        if self.audience != "public":
            found += AUTHENTICATED
        if self.audience == "caller" and "{" in self.path:
            found.append(NameAmbiguous)
        if self.mutates:
            found += MUTATION
        if self.mutates and self.repeat == "key":
            found += REPEATED_BY_KEY
        if self.guarded:
            found += GUARDED
        return tuple(dict.fromkeys(found))
