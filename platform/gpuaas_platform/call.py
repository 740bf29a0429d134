"""One call of the API, as the domains see it: who calls, what for, and the process-wide parts they may use.

`edge` makes a `Call` per request and hands it to the handler a domain registered for the endpoint in its `Routes`.
"""

import datetime
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import msgspec
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Binding, Project
from gpuaas_contract.wire import Page

from gpuaas_platform.custody import port as custody
from gpuaas_platform.kit import clock, db, hub, ids, keys, tables, tail
from gpuaas_platform.kit.attempts import Attempts
from gpuaas_platform.kit.openid import Provider
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.kit.tables import Document

Body = TypeVar("Body")
Answer = TypeVar("Answer")
Prepared = TypeVar("Prepared")


@dataclass(frozen=True)
class Site:
    """The parts of this process, built once in `server`."""

    settings: Settings
    database: db.Database
    refusals: db.Database
    """The same store. A dry run gets a `database` that keeps nothing; what is refused then is still on the record."""
    hub: hub.Hub
    keys: keys.Keys
    clock: clock.Clock
    tails: tail.Tails
    custody: custody.SecretStore
    opened_at: datetime.datetime
    """When this process began."""
    ca_pem: str = ""
    """Certificate authority of the TLS listener; empty when the server listens on loopback only."""
    ca_sha256: str = ""
    reactions: Reactions = field(default_factory=Reactions)
    """What domains do about facts of domains below them."""
    openid: Provider | None = None
    """The identity provider people can sign in through, if one is configured."""
    attempts: Attempts = field(default_factory=Attempts)
    """Failed sign-ins of late."""


@dataclass(frozen=True)
class Caller:
    actor_type: Literal["user", "service_account", "node", "system", "anonymous"]
    actor_id: str
    name: str = ""
    bindings: tuple[Binding, ...] = ()
    session_id: str = ""
    """Names the token of this call; it opens nothing."""
    session_expires_at: datetime.datetime | None = None


class Origin(msgspec.Struct, frozen=True):
    """Where a change comes from: goes into every event and audit row. A struct, like `Call`: each request makes one,
    and a frozen dataclass costs several times as much. `msgspec.structs.replace` makes another."""

    caller: Caller
    correlation_id: str
    now: datetime.datetime
    peer: str = ""
    """Address the request came from; empty for the platform's own work."""
    route: str = ""
    """Name of the endpoint that was called; empty for the platform's own work."""


async def _never() -> bool:
    return False


def _no_header(_: bytes) -> str:
    return ""


class Call(msgspec.Struct, frozen=True):
    site: Site
    origin: Origin
    params: Mapping[str, str]
    query: Any
    peer: str
    """Address the request came from."""
    project: Project | None = None
    is_gone: Callable[[], Awaitable[bool]] = _never
    """Whether the caller has hung up; asked before a long poll hands something out."""
    header: Callable[[bytes], str] = _no_header
    """A header by its lower-case name; empty when it was not sent."""
    details: dict[str, Any] = msgspec.field(default_factory=dict)
    """What a write wants its audit row to say beside the ids. Never a secret."""
    dry_run: bool = False
    """Nothing that is written is kept; what cannot be taken back, outside the store, must not be done."""

    @property
    def caller(self) -> Caller:
        return self.origin.caller

    @property
    def now(self) -> datetime.datetime:
        return self.origin.now

    async def page(self, reader: db.Reader, table: tables.Table[Document], where: str, *values: Any) -> Page[Document]:
        """The page of a list that the query asks for, in order of creation. Its items are good for encoding only."""
        size, token = self.query.page_size, self.query.page_token
        found, following = await tables.page_as_stored(table, reader, where, list(values), size=size, token=token)
        return Page(items=found, next_page_token=following)

    def in_project(self) -> Project:
        if self.project is None:
            raise LookupError("the route has no project")
        return self.project


def system_origin(now: datetime.datetime, correlation_id: str = "") -> Origin:
    return Origin(Caller("system", "platform"), correlation_id or ids.new("cor"), now)


class CutOff(Exception):
    """The rest of a stream cannot be told: the connection is cut, so that nobody takes a part for the whole."""


class Source(Protocol):
    """An open stream, as the edge sees it."""

    async def next(self) -> bytes:
        """The next bytes to send; none when the stream is over. May raise `CutOff`."""

    def end(self) -> None:
        """Make `next` say that it is over."""

    def close(self) -> None:
        """The edge is done with it."""


Read = Callable[[Call, db.Reader], Awaitable[Any]]
Write = Callable[[Call, db.Tx, Any], Awaitable[Any]]
Flow = Callable[[Call, Any], Awaitable[Any]]
Stream = Callable[[Call], Awaitable[Source]]


@dataclass
class Routes:
    """Handlers of one domain. `read` gets a reader, `write` one transaction, `flow` makes its own (it waits).

    A `stream` handler opens the source of a stream; what it raises is answered before the first byte.
    """

    reads: dict[str, Read] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)
    streams: dict[str, Stream] = field(default_factory=dict)
    authorisations: dict[str, Flow] = field(default_factory=dict)
    preparations: dict[str, Flow] = field(default_factory=dict)
    settlements: dict[str, Flow] = field(default_factory=dict)

    def read(
        self, endpoint: Endpoint[Body, Answer]
    ) -> Callable[[Callable[[Call, db.Reader], Awaitable[Answer]]], Callable[[Call, db.Reader], Awaitable[Answer]]]:
        def register(
            handler: Callable[[Call, db.Reader], Awaitable[Answer]],
        ) -> Callable[[Call, db.Reader], Awaitable[Answer]]:
            self.reads[endpoint.name] = handler
            return handler

        return register

    def write(
        self, endpoint: Endpoint[Body, Answer]
    ) -> Callable[[Callable[[Call, db.Tx, Body], Awaitable[Answer]]], Callable[[Call, db.Tx, Body], Awaitable[Answer]]]:
        def register(
            handler: Callable[[Call, db.Tx, Body], Awaitable[Answer]],
        ) -> Callable[[Call, db.Tx, Body], Awaitable[Answer]]:
            self.writes[endpoint.name] = handler
            return handler

        return register

    def authorised_write(
        self, endpoint: Endpoint[Body, Answer], authorise: Callable[[Call, Body], Awaitable[Prepared]]
    ) -> Callable[[Callable[[Call, db.Tx, Prepared], Awaitable[Answer]]], Write]:
        """A write that needs more than its permission key: `authorise` is asked each time, of repeats too."""
        self.authorisations[endpoint.name] = authorise
        return self._write_after(endpoint.name)

    def prepared_write(
        self, endpoint: Endpoint[Body, Answer], prepare: Callable[[Call, Body], Awaitable[Prepared]]
    ) -> Callable[[Callable[[Call, db.Tx, Prepared], Awaitable[Answer]]], Write]:
        """A write with slow work in front: `prepare` runs before the transaction, which gets what it returns.

        A repeat is answered without it."""
        self.preparations[endpoint.name] = prepare
        return self._write_after(endpoint.name)

    def upload(
        self, endpoint: Endpoint[bytes, Answer], take: Callable[[Call, AsyncIterator[bytes]], Awaitable[Prepared]]
    ) -> Callable[[Callable[[Call, db.Tx, Prepared], Awaitable[Answer]]], Write]:
        """A write whose body is raw: `take` reads it as it comes, before the transaction."""
        self.preparations[endpoint.name] = take
        return self._write_after(endpoint.name)

    def _write_after(self, name: str) -> Callable[[Callable[[Call, db.Tx, Any], Awaitable[Any]]], Write]:
        def register(handler: Write) -> Write:
            self.writes[name] = handler
            return handler

        return register

    def settled(
        self, endpoint: Endpoint[Body, Answer]
    ) -> Callable[[Callable[[Call, Answer], Awaitable[Answer]]], Callable[[Call, Answer], Awaitable[Answer]]]:
        """Slow work behind a write: runs after its commit, or after a dry run's roll-back, and gives the answer."""

        def register(
            handler: Callable[[Call, Answer], Awaitable[Answer]],
        ) -> Callable[[Call, Answer], Awaitable[Answer]]:
            self.settlements[endpoint.name] = handler
            return handler

        return register

    def flow(
        self, endpoint: Endpoint[Body, Answer]
    ) -> Callable[[Callable[[Call, Body], Awaitable[Answer]]], Callable[[Call, Body], Awaitable[Answer]]]:
        def register(handler: Callable[[Call, Body], Awaitable[Answer]]) -> Callable[[Call, Body], Awaitable[Answer]]:
            self.flows[endpoint.name] = handler
            return handler

        return register

    def stream(self, endpoint: Endpoint[Body, Answer]) -> Callable[[Stream], Stream]:
        def register(handler: Stream) -> Stream:
            self.streams[endpoint.name] = handler
            return handler

        return register
