"""`Endpoint`, one row of the endpoint table, and `Route`, which makes rows."""

from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, Unpack, cast

from typing_extensions import TypeVar

from gpuaas_contract.errors import (
    AUTHENTICATED,
    EVERYWHERE,
    GUARDED,
    MUTATION,
    REPEATED_BY_KEY,
    ErrorTypes,
    NameAmbiguous,
)
from gpuaas_contract.wire import NoBody, NoQuery, Page, PageQuery, Path, Query

RequestBody = TypeVar("RequestBody")
Answer = TypeVar("Answer")
PathParams = TypeVar("PathParams", bound=Path, covariant=True, default=Path)
QueryParams = TypeVar("QueryParams", bound=Query, covariant=True, default=Query)

Item = TypeVar("Item")
Deeper = TypeVar("Deeper", bound=Path)
Asked = TypeVar("Asked", bound=Query, default=NoQuery)
AskedPage = TypeVar("AskedPage", bound=Query, default=PageQuery)
_NO_QUERY: Any = NoQuery
_PAGE_QUERY: Any = PageQuery

Method = Literal["GET", "POST", "PUT", "DELETE"]
Audience = Literal["caller", "node", "public"]
"""Who authenticates: a person or service account (`caller`), a node, or no one (`public`)."""
Repeat = Literal["key", "natural"]
"""Why a repeated request has no second effect: by X-Idempotency-Key, or because of its content (PUT, epochs)."""


@dataclass(frozen=True)
class Endpoint(Generic[RequestBody, Answer, PathParams, QueryParams]):
    name: str
    """Stable dotted name: operation id, audit action and metric label."""
    method: Method
    path: str
    summary: str
    request: type[RequestBody]
    response: type[Answer]
    description: str = ""
    """What a caller must understand in addition to the summary; in whole sentences."""
    subject: str = ""
    """Target of the change in its audit row: a path parameter, or a field of the response (`instance.instance_id`).
    Empty if the change has no target: a sign-in, a heartbeat."""
    permission: str = ""
    audience: Audience = "caller"
    status: int = 200
    params: type[PathParams] = field(default=cast("type[PathParams]", Path))
    """Type with the parameters in the endpoint's path."""
    query: type[QueryParams] = field(default=cast("type[QueryParams]", NoQuery))
    repeat: Repeat = "key"
    audited: bool = True
    """Whether a call writes an audit row; False only for frequent reports of nodes and controllers."""
    secret_answer: bool = False
    """True: the response contains a secret. It is sent once and not stored for repeated requests."""
    streams: bool = False
    """The response is an endless text/event-stream; `response` is the type of each event's data."""
    media_type: str = "application/json"
    """Media type of the response. If it is not JSON, it is sent as a finite stream; errors are problem documents."""
    guarded: bool = False
    """True: a request needs If-Match with the ETag of GET on the same path, so that it changes only what the caller
    read."""
    has_etag: bool = False
    """True: the response has an ETag header although its body has no `revision`."""
    errors: ErrorTypes = ()
    example: dict[str, Any] = field(default_factory=dict)
    """One request body, as JSON values, that works on a new local cloud."""

    @property
    def mutates(self) -> bool:
        return self.method != "GET"

    @property
    def takes_bytes(self) -> bool:
        """Whether the request body is a stream of raw bytes, not JSON."""
        return self.request is bytes

    @property
    def tagged(self) -> bool:
        """Whether the response has an ETag: it is one resource with a revision, or a document."""
        fields = getattr(self.response, "__struct_fields__", ())
        return self.method == "GET" and (self.has_etag or "revision" in fields)

    def possible_errors(self) -> ErrorTypes:
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


class Options(TypedDict, total=False):
    """Fields of `Endpoint` that only some rows set."""

    subject: str
    audience: Audience
    status: int
    repeat: Repeat
    audited: bool
    secret_answer: bool
    streams: bool
    media_type: str
    guarded: bool
    has_etag: bool
    errors: ErrorTypes
    example: dict[str, Any]


@dataclass(frozen=True)
class Row(Generic[PathParams]):
    """A row without its method. `get`, `list` (a GET that returns pages), `post`, `put` and `delete` complete it.

    Defaults:
    - `permission`: the name of the row, for the audience `caller`. If it is empty, every caller may call.
    - `subject`: the id in the response.
    - `repeat`: `key`, because keys belong to callers. `natural` for PUT, and for POST of another audience.
    """

    path: str
    params: type[PathParams]
    name: str
    summary: str
    description: str

    def get(
        self,
        response: type[Answer],
        permission: str | None = None,
        *,
        query: type[Asked] = _NO_QUERY,
        **options: Unpack[Options],
    ) -> Endpoint[NoBody, Answer, PathParams, Asked]:
        return self._endpoint("GET", NoBody, response, permission, query, options)

    def list(
        self,
        item: type[Item],
        permission: str | None = None,
        *,
        query: type[AskedPage] = _PAGE_QUERY,
        **options: Unpack[Options],
    ) -> Endpoint[NoBody, Page[Item], PathParams, AskedPage]:
        page = Page[item]  # type: ignore[valid-type]
        return self._endpoint("GET", NoBody, page, permission, query, options)

    def post(
        self,
        request: type[RequestBody],
        response: type[Answer],
        permission: str | None = None,
        *,
        query: type[Asked] = _NO_QUERY,
        **options: Unpack[Options],
    ) -> Endpoint[RequestBody, Answer, PathParams, Asked]:
        return self._endpoint("POST", request, response, permission, query, options)

    def put(
        self,
        request: type[RequestBody],
        response: type[Answer],
        permission: str | None = None,
        *,
        query: type[Asked] = _NO_QUERY,
        **options: Unpack[Options],
    ) -> Endpoint[RequestBody, Answer, PathParams, Asked]:
        return self._endpoint("PUT", request, response, permission, query, options)

    def delete(
        self, response: type[Answer], permission: str | None = None, **options: Unpack[Options]
    ) -> Endpoint[NoBody, Answer, PathParams, NoQuery]:
        return self._endpoint("DELETE", NoBody, response, permission, NoQuery, options)

    def _endpoint(
        self,
        method: Method,
        request: type[RequestBody],
        response: type[Answer],
        permission: str | None,
        query: type[Asked],
        options: Options,
    ) -> Endpoint[RequestBody, Answer, PathParams, Asked]:
        by_caller = options.get("audience", "caller") == "caller"
        if permission is None:
            permission = self.name if by_caller else ""
        if method != "GET" and "subject" not in options:
            options["subject"] = self._id_of(response)
        if method == "PUT" or (method == "POST" and not by_caller):
            options.setdefault("repeat", "natural")
        return Endpoint(
            self.name,
            method,
            self.path,
            self.summary,
            request,
            response,
            self.description,
            permission=permission,
            params=self.params,
            query=query,
            **options,
        )

    def _id_of(self, response: type[object]) -> str:
        """Return the name of the response's first field if it is an id. Refuse others: the field may be a secret."""
        first: str = getattr(response, "__struct_fields__", ("",))[0]
        if not first.endswith("_id"):
            raise ValueError(f"{self.name} must name its subject: its answer does not begin with an id")
        return first


@dataclass(frozen=True)
class Route(Generic[PathParams]):
    """A path and the struct of its parameters. Rows of the endpoint table are made from it:

    NODE_GET = NODE.row("", "capacity.node.get", "Get one node").get(Node, "capacity.node.read")
    NODE_RETIRE = NODE.row("/retire", "capacity.node.retire", "Retire a node permanently").post(ChangeNode, Node)
    """

    path: str
    params: type[PathParams] = field(default=cast("type[PathParams]", Path))

    def at(self, rest: str, params: type[Deeper]) -> "Route[Deeper]":
        """Return the route of a longer path, with the struct of all its parameters."""
        return Route(self.path + rest, params)

    def row(self, rest: str, name: str, summary: str, description: str = "") -> Row[PathParams]:
        return Row(self.path + rest, self.params, name, summary, description)


AnyEndpoint = Endpoint[Any, Any]
"""An endpoint with any types of request and answer."""
