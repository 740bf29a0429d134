"""One call of the API, as the domains see it: the caller, the parameters, and the process-wide parts they may use.

`edge` makes a `Call` per request and passes it to the use case that a domain bound to the endpoint in its `Routes`.
"""

import datetime
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, overload

import msgspec
from gpuaas_contract.endpoint import AnyEndpoint, Endpoint, PathParams, QueryParams
from gpuaas_contract.identity import Binding, Project
from gpuaas_contract.paths import OrgPath, Path
from gpuaas_contract.wire import Page, Query
from typing_extensions import TypeVar

from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import clock, db, hub, ids, keys, tail
from gpuaas_platform.kit.attempts import Attempts
from gpuaas_platform.kit.openid import Provider
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.settings import Settings

Body = TypeVar("Body")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
PathT = TypeVar("PathT", bound=Path, covariant=True, default=Path)
QueryT = TypeVar("QueryT", bound=Query, covariant=True, default=Any)


@dataclass(frozen=True)
class Site:
    """The parts of this process, built once in `server`."""

    settings: Settings
    database: db.Database
    refusals: db.Database
    """The same store, for audit rows of refusals: a dry run gets a `database` that keeps nothing, and its refusals are
    recorded all the same."""
    hub: hub.Hub
    keys: keys.Keys
    clock: clock.Clock
    tails: tail.Tails
    custody: custody.SecretStore
    opened_at: datetime.datetime
    """When this process started."""
    ca_pem: str = ""
    """Certificate authority of the TLS listener; empty when the server listens on loopback only."""
    ca_sha256: str = ""
    reactions: Reactions = field(default_factory=Reactions)
    """What domains do about facts of domains below them."""
    openid: Provider | None = None
    """The identity provider people can sign in through, if one is configured."""
    attempts: Attempts = field(default_factory=Attempts)
    """Recent failed sign-ins."""


@dataclass(frozen=True)
class Caller:
    actor_type: Literal["user", "service_account", "node", "system", "anonymous"]
    actor_id: str
    name: str = ""
    bindings: tuple[Binding, ...] = ()
    session_id: str = ""
    """Identifies the token of this call; it cannot be used to sign in."""
    session_expires_at: datetime.datetime | None = None


class Origin(msgspec.Struct, frozen=True):
    """The origin of a change, stored in every event and audit row. A struct, like `Call`: each request makes one,
    and a frozen dataclass costs several times as much."""

    caller: Caller
    correlation_id: str
    now: datetime.datetime
    peer: str = ""
    """Address the request came from; empty for the platform's own work."""
    route: str = ""
    """Name of the endpoint that was called; empty for the platform's own work."""


class Owned(Protocol):
    """What belongs to a project or, with an empty `project_id`, to an organisation."""

    @property
    def org_id(self) -> str: ...

    @property
    def project_id(self) -> str: ...


@dataclass(frozen=True)
class Owner:
    """The owner of what has no document of its own; without a project the organisation, without both the platform."""

    org_id: str = ""
    project_id: str = ""


PLATFORM = Owner()


async def _never() -> bool:
    return False


async def _always() -> None:
    return


def _no_header(_: bytes) -> str:
    return ""


class Call(msgspec.Struct, Generic[PathT, QueryT], frozen=True):
    """`Call[InstancePath, PageQuery]` has the parameters of one endpoint; plain `Call` fits every endpoint."""

    site: Site
    origin: Origin
    path: PathT
    query: QueryT
    peer: str
    """Address the request came from."""
    project: Project | None = None
    is_gone: Callable[[], Awaitable[bool]] = _never
    """Return whether the caller closed the connection; a long poll asks before it hands something out."""
    admit_again: Callable[[], Awaitable[None]] = _always
    """Raise if the caller may no longer make this call; a use case that waited asks before it changes anything."""
    header: Callable[[bytes], str] = _no_header
    """Return a header by its lower-case name; empty when it was not sent."""
    details: dict[str, object] = msgspec.field(default_factory=dict)
    """What the audit row of a write contains beside the ids. Never a secret."""
    dry_run: bool = False
    """Writes are rolled back; effects outside the store that cannot be undone must not happen."""

    @property
    def caller(self) -> Caller:
        return self.origin.caller

    @property
    def now(self) -> datetime.datetime:
        return self.origin.now

    @property
    def owner(self) -> Owned:
        """The project of the route, else its organisation, else the platform."""
        if self.project is not None:
            return self.project
        return Owner(self.path.org_id) if isinstance(self.path, OrgPath) else PLATFORM

    def in_project(self) -> Project:
        if self.project is None:
            raise LookupError("the route has no project")
        return self.project


def system_origin(now: datetime.datetime, correlation_id: str = "") -> Origin:
    return Origin(Caller("system", "platform"), correlation_id or ids.new("cor"), now)


class CutOff(Exception):
    """The stream cannot be completed: the connection is cut, so that no client takes the part for the whole."""


class Source(Protocol):
    """An open stream, as the edge sees it."""

    async def next(self) -> bytes:
        """Return the next bytes to send; none when the stream is over. May raise `CutOff`."""

    def end(self) -> None:
        """Make `next` return that the stream is over."""

    def close(self) -> None:
        """Release what the stream holds; nothing is read from it any more."""


Kind = Literal["read", "write", "flow", "stream"]
Step = Callable[..., Awaitable[object]]
"""A use case, or a part of one, whose types were checked when it was bound."""


@dataclass(frozen=True)
class Handler:
    """What serves one endpoint."""

    endpoint: AnyEndpoint
    kind: Kind
    run: Step
    authorise: Step | None = None
    prepare: Step | None = None
    settle: Step | None = None


@dataclass
class Routes:
    """The handlers of one domain: use cases bound to endpoints.

    - `read` gets a reader: `(reader, call) -> answer`.
    - `write` gets one transaction: `(tx, call, body) -> answer`.
    - `flow` makes its own transactions, because it waits: `(call, body) -> answer`.
    - `stream` opens a source: `(call) -> source`; what it raises is answered before the first byte.
    """

    handlers: list[Handler] = field(default_factory=list)

    @overload
    def read(
        self,
        endpoint: Endpoint[Body, Page[Item], PathParams, QueryParams],
        use_case: Callable[[db.Reader, Call[PathParams, QueryParams]], Awaitable[EncodedPage[Item]]],
    ) -> None: ...

    @overload
    def read(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Reader, Call[PathParams, QueryParams]], Awaitable[Answer]],
    ) -> None: ...

    def read(self, endpoint: AnyEndpoint, use_case: Step) -> None:
        self.handlers.append(Handler(endpoint, "read", use_case))

    @overload
    def write(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Tx, Call[PathParams, QueryParams], Body], Awaitable[Answer]],
        *,
        settle: Callable[[Call[PathParams, QueryParams], Answer], Awaitable[Answer]] | None = None,
    ) -> None: ...

    @overload
    def write(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Tx, Call[PathParams, QueryParams], Prepared], Awaitable[Answer]],
        *,
        authorise: Callable[[Call[PathParams, QueryParams], Body], Awaitable[Prepared]],
        settle: Callable[[Call[PathParams, QueryParams], Answer], Awaitable[Answer]] | None = None,
    ) -> None: ...

    @overload
    def write(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Tx, Call[PathParams, QueryParams], Prepared], Awaitable[Answer]],
        *,
        prepare: Callable[[Call[PathParams, QueryParams], Body], Awaitable[Prepared]],
    ) -> None: ...

    def write(
        self,
        endpoint: AnyEndpoint,
        use_case: Step,
        *,
        authorise: Step | None = None,
        prepare: Step | None = None,
        settle: Step | None = None,
    ) -> None:
        """Bind a write. Each step is optional:

        - `authorise` checks more than the endpoint's permission, for each request and each replay; the transaction
          gets what it returns instead of the body.
        - `prepare` does slow work before the transaction, which gets what it returns; a replay skips it.
        - `settle` does slow work after the commit, or after a dry run's roll-back, and returns the final answer.
        """
        self.handlers.append(Handler(endpoint, "write", use_case, authorise, prepare, settle))

    def upload(
        self,
        endpoint: Endpoint[bytes, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Tx, Call[PathParams, QueryParams], Prepared], Awaitable[Answer]],
        *,
        prepare: Callable[[Call[PathParams, QueryParams], AsyncIterator[bytes]], Awaitable[Prepared]],
    ) -> None:
        """Bind a write whose body is raw: `prepare` reads it as it arrives, before the transaction."""
        self.handlers.append(Handler(endpoint, "write", use_case, prepare=prepare))

    def flow(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[Call[PathParams, QueryParams], Body], Awaitable[Answer]],
    ) -> None:
        self.handlers.append(Handler(endpoint, "flow", use_case))

    def stream(
        self,
        endpoint: Endpoint[Body, Answer, PathParams, QueryParams],
        use_case: Callable[[Call[PathParams, QueryParams]], Awaitable[Source]],
    ) -> None:
        self.handlers.append(Handler(endpoint, "stream", use_case))
