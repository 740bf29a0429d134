"""One API call, as a domain's use case gets it: the caller, the parameters, and the shared parts of the process.

`edge` makes one `Call` per request and passes it to the use case that a domain bound to the endpoint in its `Routes`.
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
from gpuaas_platform.kit import clock, db, health, hub, ids, keys, tail
from gpuaas_platform.kit.attempts import Attempts
from gpuaas_platform.kit.batches import Batcher
from gpuaas_platform.kit.gauges import Gauge
from gpuaas_platform.kit.openid import Provider
from gpuaas_platform.kit.paging import EncodedPage
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.recent_refusals import RecentRefusals
from gpuaas_platform.kit.refusals import Refusals
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.traces import Spans

Body = TypeVar("Body")
Answer = TypeVar("Answer")
Item = TypeVar("Item")
Prepared = TypeVar("Prepared")
PathT = TypeVar("PathT", bound=Path, covariant=True, default=Path)
QueryT = TypeVar("QueryT", bound=Query, covariant=True, default=Any)


@dataclass(frozen=True)
class Site:
    """The shared parts of this process: settings, store, keys, clock and so on. `server` builds them once."""

    settings: Settings
    database: db.Database
    hub: hub.Hub
    keys: keys.Keys
    clock: clock.GuardedClock
    tails: tail.Tails
    custody: custody.SecretStore
    health: dict[str, health.Check]
    """The checks of `/readyz`, by name."""
    opened_at: datetime.datetime
    """When this process started."""
    ca_pem: str = ""
    """Certificate of the TLS authority in PEM form."""
    ca_sha256: str = ""
    reactions: Reactions = field(default_factory=Reactions)
    """Functions that a domain runs when a domain below it publishes a fact. See `kit.reactions`."""
    openid: Provider | None = None
    """The identity provider that users can sign in through; None if none is configured."""
    attempts: Attempts = field(default_factory=Attempts)
    """Counts recent failed sign-ins, to limit password guessing."""
    gauges: list[Gauge] = field(default_factory=list)
    """Values of the process that `/metrics` shows."""
    batches: Batcher = field(default_factory=Batcher)
    """Questions of many nodes to the store, answered together."""
    refusals: Refusals = field(default_factory=Refusals)
    """Counts refused sign-ins for the audit trail, also those of dry runs."""
    refused: RecentRefusals = field(default_factory=RecentRefusals)
    """The last refused requests of each project, for `record.correlation.get`."""
    spans: Spans | None = None
    """Sends spans to a collector; None if none is configured."""


@dataclass(frozen=True)
class Caller:
    actor_type: Literal["user", "service_account", "node", "system", "anonymous"]
    actor_id: str
    name: str = ""
    bindings: tuple[Binding, ...] = ()
    session_id: str = ""
    """Public id of the token that this call carries. It is not a secret: it cannot be used to sign in."""
    session_expires_at: datetime.datetime | None = None
    keys: frozenset[str] | None = None
    """The only permissions that the caller can use, if its role has them; None: all of its roles."""
    apps: frozenset[str] = frozenset()
    """The apps that the caller, a service account, operates."""


class Origin(msgspec.Struct, frozen=True):
    """The origin of a change, stored in every event and audit row. It is a struct, like `Call`, because each request
    makes one and a frozen dataclass takes several times as long to create."""

    caller: Caller
    correlation_id: str
    now: datetime.datetime
    peer: str = ""
    """Address the request came from; empty for the platform's own work."""
    route: str = ""
    """Name of the endpoint that was called; empty for the platform's own work."""
    traceparent: str = ""
    """W3C trace context of the request; empty for the platform's own work."""


class Owned(Protocol):
    """An object that belongs to a project or, if its `project_id` is empty, to an organisation."""

    @property
    def org_id(self) -> str: ...

    @property
    def project_id(self) -> str: ...


@dataclass(frozen=True)
class Owner:
    """The owner of an event or audit row: the project; if that is empty the organisation; if both are, the platform."""

    org_id: str = ""
    project_id: str = ""


PLATFORM = Owner()


class Call(msgspec.Struct, Generic[PathT, QueryT], frozen=True):
    """One API call. `Call[InstancePath, PageQuery]` types the parameters of an endpoint; `Call` fits every endpoint."""

    site: Site
    origin: Origin
    path: PathT
    query: QueryT
    project: Project | None
    is_gone: Callable[[], Awaitable[bool]]
    """Return whether the caller closed the connection. A long poll checks this before it hands out work."""
    admit_again: Callable[[], Awaitable[Caller]]
    """Return the caller as stored now; raise if they may no longer make this call. A use case that waited calls it
    before it changes anything."""
    header: Callable[[bytes], str]
    """Return the value of a request header by its lower-case name; empty if the header was not sent."""
    dry_run: bool
    """If true, writes are rolled back; the use case must not do anything outside the store that cannot be undone."""
    details: dict[str, object] = msgspec.field(default_factory=dict)
    """Fields that the audit row of a write gets in addition to the ids. Must not contain a secret."""

    @property
    def caller(self) -> Caller:
        return self.origin.caller

    @property
    def peer(self) -> str:
        """The address that the request came from."""
        return self.origin.peer

    @property
    def now(self) -> datetime.datetime:
        return self.origin.now

    @property
    def owner(self) -> Owned:
        """Return the project that the route names, else its organisation, else the platform."""
        if self.project is not None:
            return self.project
        return Owner(self.path.org_id) if isinstance(self.path, OrgPath) else PLATFORM

    def poll(
        self,
        topic: str,
        wait_s: float,
        look: Callable[[], Awaitable[Answer]],
        enough: Callable[[Answer], bool],
        *,
        look_every_s: float = hub.WAIT_MAX_S,
        check: Callable[[], Awaitable[object]] | None = None,
    ) -> Awaitable[Answer]:
        """Wait as `Hub.poll` does, but end with a refusal soon after the caller lost the permission for this call.

        `check` replaces the check of the permission. A node has only one way to lose it, which wakes its long poll."""
        every_s = hub.WAIT_MAX_S if self.caller.actor_type == "node" else self.site.settings.stream_recheck_s
        checked = hub.Check(check or self.admit_again, every_s)
        return self.site.hub.poll(topic, wait_s, look, enough, look_every_s=look_every_s, check=checked)

    def in_project(self) -> Project:
        if self.project is None:
            raise LookupError("the route has no project")
        return self.project


def system_origin(now: datetime.datetime, correlation_id: str = "") -> Origin:
    return Origin(Caller("system", "platform"), correlation_id or ids.new("cor"), now)


class CutOff(Exception):
    """The stream cannot be completed. The connection is closed without an end, so that the client sees the failure."""


class Source(Protocol):
    """The content of a streamed response: the HTTP edge reads its parts one after another."""

    async def next(self) -> bytes:
        """Return the next bytes to send; empty bytes when the stream has ended. May raise `CutOff`."""

    def end(self) -> None:
        """End the stream: `next` then returns empty bytes."""

    def close(self) -> None:
        """Release the resources of the stream. `next` is not called afterwards."""


Kind = Literal["read", "write", "flow", "stream"]
Step = Callable[..., Awaitable[object]]
"""A use case or a step of it. Its parameters are untyped here: a method of `Routes` checked them when it was bound."""


@dataclass(frozen=True)
class Handler:
    """The functions that serve one endpoint: the use case `run` and its optional steps. See `Routes.write`."""

    endpoint: AnyEndpoint
    kind: Kind
    run: Step
    authorise: Step | None = None
    prepare: Step | None = None
    settle: Step | None = None


@dataclass
class Routes:
    """The handlers of one domain. Each method binds a use case of one kind to an endpoint:

    - `read` gets a reader: `(reader, call) -> answer`.
    - `write` gets one transaction: `(tx, call, body) -> answer`.
    - `flow` opens its own transactions, because it also waits for other things: `(call, body) -> answer`.
    - `stream` opens a source: `(call) -> source`. An error that it raises becomes a normal error response.
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
        authorise: Callable[[Call[PathParams, QueryParams], Body], Awaitable[Body]] | None = None,
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
        """Bind a write use case. These steps are optional:

        - `authorise` checks more than the endpoint's permission, for each request and each replay. The use case gets
          its return value instead of the body.
        - `prepare` does slow work before the transaction. The use case gets its return value. A replay skips it.
        - `settle` does slow work after the commit (in a dry run: after the roll-back) and returns the final answer.
        """
        self.handlers.append(Handler(endpoint, "write", use_case, authorise, prepare, settle))

    def upload(
        self,
        endpoint: Endpoint[bytes, Answer, PathParams, QueryParams],
        use_case: Callable[[db.Tx, Call[PathParams, QueryParams], Prepared], Awaitable[Answer]],
        *,
        prepare: Callable[[Call[PathParams, QueryParams], AsyncIterator[bytes]], Awaitable[Prepared]],
    ) -> None:
        """Bind a write whose body is raw bytes. `prepare` reads the body as it arrives, before the transaction."""
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
