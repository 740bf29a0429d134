"""One call of the API, as the domains see it: who calls, what for, and the process-wide parts they may use.

`edge` makes a `Call` per request and hands it to the handler a domain registered for the endpoint in its `Routes`.
"""

import datetime
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.identity import Binding, Project

from gpuaas_platform.kit import clock, db, hub, ids, keys
from gpuaas_platform.kit.settings import Settings

Body = TypeVar("Body")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Site:
    """The parts of this process, built once in `server`."""

    settings: Settings
    database: db.Database
    hub: hub.Hub
    keys: keys.Keys
    clock: clock.Clock
    ca_pem: str = ""
    """Certificate authority of the TLS listener; empty when the server listens on loopback only."""
    ca_sha256: str = ""


@dataclass(frozen=True)
class Caller:
    actor_type: Literal["user", "service_account", "node", "system", "anonymous"]
    actor_id: str
    name: str = ""
    bindings: tuple[Binding, ...] = ()


@dataclass(frozen=True)
class Origin:
    """Where a change comes from: goes into every event and audit row."""

    caller: Caller
    correlation_id: str
    now: datetime.datetime


async def _never() -> bool:
    return False


@dataclass(frozen=True)
class Call:
    site: Site
    origin: Origin
    params: Mapping[str, str]
    query: Any
    peer: str
    """Address the request came from."""
    project: Project | None = None
    is_gone: Callable[[], Awaitable[bool]] = field(default=_never)
    """Whether the caller has hung up; asked before a long poll hands something out."""

    @property
    def caller(self) -> Caller:
        return self.origin.caller

    @property
    def now(self) -> datetime.datetime:
        return self.origin.now

    def in_project(self) -> Project:
        if self.project is None:
            raise LookupError("the route has no project")
        return self.project


def system_origin(now: datetime.datetime, correlation_id: str = "") -> Origin:
    return Origin(Caller("system", "platform"), correlation_id or ids.new("cor"), now)


Read = Callable[[Call, db.Reader], Awaitable[Any]]
Write = Callable[[Call, db.Tx, Any], Awaitable[Any]]
Flow = Callable[[Call, Any], Awaitable[Any]]


@dataclass
class Routes:
    """Handlers of one domain. `read` gets a reader, `write` one transaction, `flow` makes its own (it waits)."""

    reads: dict[str, Read] = field(default_factory=dict)
    writes: dict[str, Write] = field(default_factory=dict)
    flows: dict[str, Flow] = field(default_factory=dict)

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

    def flow(
        self, endpoint: Endpoint[Body, Answer]
    ) -> Callable[[Callable[[Call, Body], Awaitable[Answer]]], Callable[[Call, Body], Awaitable[Answer]]]:
        def register(handler: Callable[[Call, Body], Awaitable[Answer]]) -> Callable[[Call, Body], Awaitable[Answer]]:
            self.flows[endpoint.name] = handler
            return handler

        return register
