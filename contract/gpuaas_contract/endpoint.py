"""The form of one row of the endpoint table."""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, cast

from typing_extensions import TypeVar

from gpuaas_contract.errors import (
    AUTHENTICATED,
    EVERYWHERE,
    GUARDED,
    MUTATION,
    REPEATED_BY_KEY,
    ApiError,
    NameAmbiguous,
)
from gpuaas_contract.paths import Path
from gpuaas_contract.wire import NoQuery, Query

RequestBody = TypeVar("RequestBody")
Answer = TypeVar("Answer")
PathParams = TypeVar("PathParams", bound=Path, covariant=True, default=Path)
QueryParams = TypeVar("QueryParams", bound=Query, covariant=True, default=Query)

Audience = Literal["caller", "node", "public"]
"""Who authenticates: a person or service account (`caller`), a node, or no one (`public`)."""
Repeat = Literal["key", "natural"]
"""Why a repeated change is made once: by X-Idempotency-Key, or because its content allows it (PUT, epochs)."""


@dataclass(frozen=True)
class Endpoint(Generic[RequestBody, Answer, PathParams, QueryParams]):
    name: str
    """Stable dotted name: operation id, audit action and metric label."""
    method: Literal["GET", "POST", "PUT", "DELETE"]
    path: str
    summary: str
    request: type[RequestBody]
    response: type[Answer]
    description: str = ""
    """What a caller needs to understand beside the summary; whole sentences."""
    subject: str = ""
    """What a change is about, for its audit row: a path parameter, or a field of the answer (`instance.instance_id`).
    Empty where the change has no subject: a sign-in, a heartbeat."""
    permission: str = ""
    audience: Audience = "caller"
    status: int = 200
    params: type[PathParams] = field(default=cast("type[PathParams]", Path))
    """The parameters in the path."""
    query: type[QueryParams] = field(default=cast("type[QueryParams]", NoQuery))
    repeat: Repeat = "key"
    audited: bool = True
    """Writes an audit row; off only for the frequent reports of nodes and controllers."""
    secret_answer: bool = False
    """The answer contains a secret: it is sent once and never stored for a replay."""
    streams: bool = False
    """The answer is a text/event-stream without an end; `response` is the type of each event's data."""
    media_type: str = "application/json"
    """Media type of the answer. Anything but JSON is sent as a stream that ends; errors stay problem documents."""
    guarded: bool = False
    """Changes only what the caller has read: needs If-Match with the ETag of GET on the same path."""
    has_etag: bool = False
    """Answers with an ETag although the answer has no `revision`."""
    errors: tuple[type[ApiError], ...] = ()
    example: dict[str, Any] = field(default_factory=dict)
    """One request body that works on a fresh local cloud, as JSON values."""

    @property
    def mutates(self) -> bool:
        return self.method != "GET"

    @property
    def takes_bytes(self) -> bool:
        """The body is read as a stream of raw bytes, not as JSON."""
        return self.request is bytes

    @property
    def tagged(self) -> bool:
        """Answers with an ETag: one resource with a revision, or a document."""
        fields = getattr(self.response, "__struct_fields__", ())
        return self.method == "GET" and (self.has_etag or "revision" in fields)

    def possible_errors(self) -> tuple[type[ApiError], ...]:
        kinds = [*EVERYWHERE, *self.errors]
        if self.audience != "public":
            kinds += AUTHENTICATED
        if self.audience == "caller" and "{" in self.path:
            kinds.append(NameAmbiguous)
        if self.mutates:
            kinds += MUTATION
        if self.mutates and self.repeat == "key":
            kinds += REPEATED_BY_KEY
        if self.guarded:
            kinds += GUARDED
        return tuple(dict.fromkeys(kinds))


AnyEndpoint = Endpoint[Any, Any]
"""A row of the table where its types do not matter."""
