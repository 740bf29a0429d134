"""Assemble the process: store, keys, routes, loops, listeners. `main` calls `serve`; tests call `open_site`."""

import asyncio
import contextlib
import ctypes
import functools
import gc
import math
import os
import signal
import socket
import sqlite3
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import structlog
import uvicorn

from gpuaas_platform import tls
from gpuaas_platform.access.machines import authority as ssh_authority
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.access.placements import service as placements
from gpuaas_platform.access.routes import routes as access_routes
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.allocations import reconcile as allocations_reconcile
from gpuaas_platform.allocations.reactions import reactions as allocation_reactions
from gpuaas_platform.allocations.routes import routes as allocation_routes
from gpuaas_platform.artifacts import reconcile as artifacts_reconcile
from gpuaas_platform.artifacts.routes import routes as artifacts_routes
from gpuaas_platform.call import Routes, Site
from gpuaas_platform.catalog.routes import routes as catalog_routes
from gpuaas_platform.custody import choice as custody_choice
from gpuaas_platform.custody import port as custody
from gpuaas_platform.edge import http, idempotency, listener
from gpuaas_platform.identity.accounts.routes import routes as account_routes
from gpuaas_platform.identity.routes import routes as identity_routes
from gpuaas_platform.identity.tokens import retention as token_retention
from gpuaas_platform.identity.users.routes import routes as people_routes
from gpuaas_platform.instances import breakers
from gpuaas_platform.instances.routes import routes as instances_routes
from gpuaas_platform.kit import clock, db, hub, keys, loop, migrate, openid, postgres, retention, sqlite, tail
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import reconcile as nodes_reconcile
from gpuaas_platform.nodes.routes import routes as node_routes
from gpuaas_platform.operations import controllers
from gpuaas_platform.operations import reconcile as operations_reconcile
from gpuaas_platform.operations.routes import routes as operations_routes
from gpuaas_platform.policy.routes import routes as policy_routes
from gpuaas_platform.projects.routes import routes as project_routes
from gpuaas_platform.record import heads as record_heads
from gpuaas_platform.record import retention as record_retention
from gpuaas_platform.record.routes import routes as record_routes
from gpuaas_platform.usage.routes import routes as usage_routes

log = structlog.get_logger()

DOMAINS: tuple[Routes, ...] = (
    record_routes,
    identity_routes,
    people_routes,
    account_routes,
    policy_routes,
    catalog_routes,
    artifacts_routes,
    allocation_routes,
    node_routes,
    instances_routes,
    operations_routes,
    access_routes,
    usage_routes,
    project_routes,
)
REACTIONS = Reactions.merged((allocation_reactions, placements.reactions, grants_reconcile.reactions))
RETAINED: tuple[retention.Retained, ...] = (
    idempotency.RETAINED,
    *token_retention.RETAINED,
    record_retention.RETAINED,
    placements.RETAINED,
    artifacts_reconcile.RETAINED,
    *nodes_reconcile.RETAINED,
    breakers.RETAINED,
    controllers.RETAINED,
)
"""Rows that are deleted when they are old, each by the domain that owns them."""

_NEW_OBJECTS_UNTIL_COLLECTION = 20_000
_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES = -3, 128 * 1024


@dataclass(frozen=True)
class Listen:
    host: str
    port: int
    encrypted: bool
    """True for every address except loopback."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{host}:{self.port}"


class CannotStart(Exception):
    """The server cannot start in this environment. `fix` is what the operator can do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.fix = fix


Prepare = Callable[[Site], Awaitable[None]]


@contextlib.asynccontextmanager
async def open_site(settings: Settings, now: clock.Clock = clock.utc_now) -> AsyncIterator[Site]:
    await refuse_newer_database(settings)
    wakes = hub.Hub()
    database = await _open_database(settings, wakes)
    authority = tls.load_authority(_keys_folder(settings), now())
    tails = tail.Tails(wakes, tick_s=settings.stream_silence_s_max / 3)
    try:
        yield Site(
            settings=settings,
            database=database,
            refusals=database,
            hub=wakes,
            keys=keys.load(_keys_folder(settings)),
            clock=now,
            tails=tails,
            custody=_open_custody(settings, database),
            ca_pem=authority.pem,
            ca_sha256=authority.sha256,
            reactions=REACTIONS,
            openid=_openid_provider(settings),
            opened_at=now(),
        )
    finally:
        await tails.close()
        await database.close()


async def refuse_newer_database(settings: Settings) -> None:
    """Raise `CannotStart` if a newer release migrated the database. Commands call it before they change anything."""
    try:
        await migrate.check_not_newer(settings.sqlite_path, settings.database_url)
    except migrate.NewerDatabase as error:
        raise CannotStart(f"cannot open the store {_store_name(settings)}: {error}", error.fix) from error
    except (asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error, OSError, ValueError) as error:
        raise _unreachable(settings, error) from error


async def serve(
    settings: Settings, listens: Sequence[Listen], sockets: Sequence[socket.socket], prepare: Prepare
) -> None:
    """Open the store, run `prepare`, then serve until a signal stops the process."""
    async with open_site(settings) as site:
        await prepare(site)
        await ssh_authority.start(site)
        async with loops(site):
            application = http.application(site, DOMAINS)
            _collect_seldom()
            _map_large_blocks()
            try:
                await _serve_all(application, site, listens, sockets)
            finally:
                application.close()


def bind(listens: Sequence[Listen]) -> list[socket.socket]:
    """Bind the addresses first: two servers on one address is the most common mistake."""
    return [_bind_one(listen) for listen in listens]


@contextlib.asynccontextmanager
async def loops(site: Site) -> AsyncIterator[None]:
    sweeps = {
        artifacts_reconcile.TOPIC: artifacts_reconcile.sweep,
        nodes_reconcile.TOPIC: nodes_reconcile.sweep,
        ssh_authority.TOPIC: ssh_authority.sweep,
        secrets_reconcile.TOPIC: secrets_reconcile.sweep,
        operations_reconcile.TOPIC: operations_reconcile.sweep,
        grants_reconcile.TOPIC: grants_reconcile.sweep,
        retention.TOPIC: forget_old_rows,
    }
    tasks = [
        asyncio.create_task(
            loop.run(site.hub, topic, site.settings.sweep_interval_s, functools.partial(sweep, site)), name=topic
        )
        for topic, sweep in sweeps.items()
    ]
    signer, content_sweep = heads_signer(site), artifacts_reconcile.ContentSweep(site)
    allocations_sweep = allocations_reconcile.Sweep(site)
    stateful: dict[str, tuple[float, Callable[[], Awaitable[None]]]] = {
        allocations_reconcile.TOPIC: (site.settings.sweep_interval_s, allocations_sweep.sweep),
        secrets_reconcile.DELETED_TOPIC: (
            secrets_reconcile.DELETED_SWEEP_S,
            functools.partial(secrets_reconcile.end_secrets_of_deleted, site),
        ),
        record_heads.TOPIC: (site.settings.audit_head_interval_s, signer.sweep),
        artifacts_reconcile.CONTENT_TOPIC: (site.settings.artifact_sweep_interval_s, content_sweep.sweep),
    }
    tasks += [
        asyncio.create_task(loop.run(site.hub, topic, interval_s, sweep), name=topic)
        for topic, (interval_s, sweep) in stateful.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await signer.sweep()


async def forget_old_rows(site: Site) -> None:
    await retention.sweep(site.database, site.settings, site.clock(), RETAINED)


def heads_signer(site: Site) -> record_heads.Signer:
    folder = record_heads.folder_in(site.settings.data_dir)
    return record_heads.Signer(site.database.reader, folder, site.keys.audit, site.clock)


def _collect_seldom() -> None:
    """Requests make hardly any reference cycles, and what is loaded by now stays: so collect garbage rarely."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_UNTIL_COLLECTION)


def _map_large_blocks() -> None:
    """Let the kernel map large blocks. A TLS connection has a buffer of 256 KB and uses one page of it. By default
    glibc soon takes such blocks from its heap, where pages used before stay resident: a third of the memory of a
    server with many nodes."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


async def _serve_all(
    application: http.Application, site: Site, listens: Sequence[Listen], sockets: Sequence[socket.socket]
) -> None:
    servers = [_server(application, site, listen) for listen in listens]
    running = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, _ask_to_exit, site, servers)
    for listen in listens:
        log.info("server.listening", url=listen.url)
    pairs = zip(servers, sockets, strict=True)
    await asyncio.gather(*(server.serve(sockets=[bound]) for server, bound in pairs))


def _bind_one(listen: Listen) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        free = f"--listen {listen.host}:{listen.port + 1 if listen.port < 65535 else 7070}"
        raise CannotStart(
            f"cannot listen on {listen.host}:{listen.port}: {why}",
            f"Stop the process that uses it, or choose another address: {free}",
        ) from error
    return bound


class _Server(uvicorn.Server):
    """Several listeners share one process, so none of them handles signals."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _server(application: http.Application, site: Site, listen: Listen) -> _Server:
    def encryption(*_: object) -> ssl.SSLContext:
        folder, now = _keys_folder(site.settings), site.clock()
        return tls.server_context(tls.load_authority(folder, now), folder, listen.host, now)

    return _Server(
        uvicorn.Config(
            application,
            host=listen.host,
            port=listen.port,
            log_config=None,
            lifespan="off",
            access_log=False,
            http=listener.Protocol,
            server_header=False,
            proxy_headers=False,
            ssl_context_factory=encryption if listen.encrypted else None,
            # A node that is not lost yet keeps its connection between two heartbeats.
            timeout_keep_alive=math.ceil(site.settings.node_lost_after_s),
            timeout_graceful_shutdown=2,
        )
    )


def _ask_to_exit(site: Site, servers: list[_Server]) -> None:
    site.hub.close()
    for server in servers:
        server.should_exit = True


async def _open_database(settings: Settings, wakes: hub.Hub) -> db.Database:
    try:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return await _connect(settings, wakes)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error, OSError, ValueError) as error:
        raise _unreachable(settings, error) from error


def _unreachable(settings: Settings, error: Exception) -> CannotStart:
    why = " ".join(str(error).split()) or type(error).__name__
    fix = (
        "Check --database: postgresql://USER@HOST:PORT/NAME"
        if settings.database_url
        else "Check --data: a writable folder, empty or with a database of this platform"
    )
    return CannotStart(f"cannot open the store {_store_name(settings)}: {why}", fix)


def _store_name(settings: Settings) -> str:
    return postgres.shown(settings.database_url) if settings.database_url else str(settings.data_dir)


async def _connect(settings: Settings, wakes: hub.Hub) -> db.Database:
    if settings.database_url:
        await migrate.migrate_postgres(settings.database_url)
        return await postgres.PostgresDatabase.connect(settings.database_url, wakes.notify, wakes.notify_all)
    migrate.migrate_sqlite(settings.sqlite_path)
    return sqlite.SqliteDatabase(settings.sqlite_path, wakes.notify)


def _open_custody(settings: Settings, database: db.Database) -> custody.SecretStore:
    try:
        return custody_choice.opened(settings, database)
    except custody.CustodyError as error:
        raise CannotStart("cannot open the store of secrets", str(error)) from error


def _openid_provider(settings: Settings) -> openid.Provider | None:
    if not settings.oidc_issuer:
        return None
    secret_file = settings.oidc_client_secret_file
    secret = secret_file.read_text().strip() if secret_file else ""
    return openid.Provider(settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_redirect_url)


def _keys_folder(settings: Settings) -> Path:
    folder = settings.data_dir / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
