"""Assemble the process: store, keys, routes, loops, listeners. `main` calls `serve`; tests call `open_site`."""

import asyncio
import contextlib
import ctypes
import datetime
import errno
import functools
import gc
import importlib
import math
import os
import signal
import socket
import sqlite3
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import httpx
import structlog
import uvicorn
from cryptography import x509

from gpuaas_platform import certificates, tls
from gpuaas_platform.access.machines import authority as ssh_authority
from gpuaas_platform.access.machines import reconcile as grants_reconcile
from gpuaas_platform.access.placements import service as placements
from gpuaas_platform.access.routes import routes as access_routes
from gpuaas_platform.access.secrets import reconcile as secrets_reconcile
from gpuaas_platform.allocations import reconcile as allocations_reconcile
from gpuaas_platform.allocations.people import reconcile as people_reconcile
from gpuaas_platform.allocations.reactions import reactions as allocation_reactions
from gpuaas_platform.allocations.routes import routes as allocation_routes
from gpuaas_platform.artifacts import reconcile as artifacts_reconcile
from gpuaas_platform.artifacts.routes import routes as artifacts_routes
from gpuaas_platform.call import Routes, Site
from gpuaas_platform.catalog.routes import routes as catalog_routes
from gpuaas_platform.custody import port as custody
from gpuaas_platform.custody.embedded import EmbeddedCustody
from gpuaas_platform.edge import http, idempotency, listener, telemetry
from gpuaas_platform.edge.acceptor import Acceptor
from gpuaas_platform.identity.accounts.routes import routes as account_routes
from gpuaas_platform.identity.routes import routes as identity_routes
from gpuaas_platform.identity.tokens import retention as token_retention
from gpuaas_platform.identity.users.routes import routes as people_routes
from gpuaas_platform.instances import breakers
from gpuaas_platform.instances.routes import routes as instances_routes
from gpuaas_platform.kit import (
    clock,
    db,
    descriptors,
    health,
    hub,
    keys,
    loop,
    migrate,
    openid,
    postgres,
    private,
    retention,
    sqlite,
    tail,
)
from gpuaas_platform.kit.gauges import Gauge
from gpuaas_platform.kit.reactions import Reactions
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.nodes import reconcile as nodes_reconcile
from gpuaas_platform.nodes.routes import routes as node_routes
from gpuaas_platform.nodes.sanitise import reconcile as sanitise_reconcile
from gpuaas_platform.nodes.sanitise.http import HttpProvisioner
from gpuaas_platform.operations import controllers, dismissals, stewards
from gpuaas_platform.operations import log as operation_log
from gpuaas_platform.operations import reconcile as operations_reconcile
from gpuaas_platform.operations import upgrade as accounts_upgrade
from gpuaas_platform.operations.routes import routes as operations_routes
from gpuaas_platform.policy.routes import routes as policy_routes
from gpuaas_platform.projects.routes import routes as project_routes
from gpuaas_platform.record import heads as record_heads
from gpuaas_platform.record import refusals as record_refusals
from gpuaas_platform.record import retention as record_retention
from gpuaas_platform.record import start as record_start
from gpuaas_platform.record.routes import routes as record_routes
from gpuaas_platform.statements.routes import routes as statement_routes
from gpuaas_platform.usage.routes import routes as usage_routes

log = structlog.get_logger()

Prepare = Callable[[Site], Awaitable[None]]
Sweep = Callable[[], Awaitable[None]]

_IDENTITY = (record_routes, identity_routes, people_routes, account_routes, project_routes)
_CATALOG = (policy_routes, catalog_routes, artifacts_routes)
_CAPACITY = (allocation_routes, node_routes)
_WORK = (instances_routes, operations_routes, access_routes, statement_routes, usage_routes)
DOMAINS: tuple[Routes, ...] = (*_IDENTITY, *_CATALOG, *_CAPACITY, *_WORK)
REACTIONS = Reactions.merged(
    (allocation_reactions, dismissals.reactions, placements.reactions, grants_reconcile.reactions)
)
RETAINED: tuple[retention.Retained, ...] = (
    idempotency.RETAINED,
    *token_retention.RETAINED,
    record_retention.RETAINED,
    placements.RETAINED,
    artifacts_reconcile.RETAINED,
    *nodes_reconcile.RETAINED,
    breakers.RETAINED,
    controllers.RETAINED,
    *operation_log.RETAINED,
    stewards.RETAINED,
)
"""All rows that are deleted when they are old. Each entry belongs to the domain that owns the table."""

_STORE_FAILED = (asyncpg.PostgresError, asyncpg.InterfaceError, sqlite3.Error, OSError, ValueError)
_NEW_OBJECTS_UNTIL_COLLECTION = 20_000
_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES = -3, 128 * 1024


@dataclass(frozen=True)
class Listen:
    host: str
    port: int
    encrypted: bool
    """Whether to use TLS: true for every address except loopback."""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.encrypted else 'http'}://{host}:{self.port}"


class CannotStart(Exception):
    """The server cannot start in this environment. `fix` is what the operator can do. If `exit_code` is `TRY_AGAIN`, a
    later start may work without any fix, so a service manager starts the server again."""

    TRY_AGAIN = 75

    def __init__(self, message: str, fix: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.fix = fix
        self.exit_code = exit_code


@contextlib.asynccontextmanager
async def open_site(
    settings: Settings, now: clock.Clock = clock.utc_now, elapsed_s: Callable[[], float] | None = None
) -> AsyncIterator[Site]:
    """Open the store and the keys. `elapsed_s` is what the clock `now` is compared with; see `clock.GuardedClock`."""
    refuse_unfinished_restore(settings)
    await refuse_newer_database(settings)
    wakes = hub.Hub()
    guarded = clock.GuardedClock(now, elapsed_s)
    database = await _open_database(settings, wakes)
    pinned = _pinned(settings, guarded())
    tails = tail.Tails(wakes, tick_s=settings.stream_silence_s_max / 3)
    spans = telemetry.open_spans(settings)
    try:
        yield Site(
            settings=settings,
            database=database,
            hub=wakes,
            keys=keys.load(_keys_folder(settings)),
            clock=guarded,
            tails=tails,
            custody=_open_custody(settings, database),
            health=_health_checks(settings, database, guarded),
            ca_pem=pinned.pem,
            ca_sha256=pinned.sha256,
            reactions=REACTIONS,
            openid=_openid_provider(settings),
            opened_at=guarded(),
            gauges=_gauges(guarded, pinned),
            spans=spans,
        )
    finally:
        if spans is not None:
            await asyncio.to_thread(spans.close)
        await tails.close()
        await database.close()


def refuse_unfinished_restore(settings: Settings) -> None:
    """Raise `CannotStart` if a restore into the data folder was interrupted: a part of the platform is missing."""
    if settings.unfinished_restore_path.exists():
        folder = settings.data_dir
        fix = f"Empty the target and restore again: rm -r {folder}; gpuaas-platform restore --data {folder} …"
        raise CannotStart(f"the restore into {folder} did not finish", fix)


def refuse_missing_platform(settings: Settings) -> None:
    """Raise `CannotStart` if the data folder has no platform: to open it would create one."""
    if not (settings.data_dir / "keys" / keys.AUDIT_FILE).exists():
        fix = "Name the data folder of the server: --data DATA"
        raise CannotStart(f"there is no platform in {settings.data_dir}", fix)


async def refuse_newer_database(settings: Settings) -> None:
    """Raise `CannotStart` if a newer release migrated the database. Commands call this before they change anything."""
    with _store_failures(settings):
        await migrate.check_not_newer(settings.sqlite_path, settings.database_url)


async def serve(
    settings: Settings,
    listens: Sequence[Listen],
    sockets: Sequence[socket.socket],
    prepare: Prepare,
    *,
    now: clock.Clock = clock.utc_now,
    elapsed_s: Callable[[], float] = clock.boot_s,
) -> None:
    """Open the store, run `prepare`, then serve until a signal stops the process."""
    async with open_site(settings, now, elapsed_s) as site:
        await _check_record(site)
        await prepare(site)
        await ssh_authority.start(site)
        await accounts_upgrade.bind_accounts(site)
        async with loops(site):
            application = http.application(site, DOMAINS)
            _collect_seldom()
            _map_large_blocks()
            await _serve_all(application, site, listens, sockets)


async def _check_record(site: Site) -> None:
    try:
        await record_start.check_database_clock(site)
        await record_start.check(site)
    except record_start.Refused as error:
        raise CannotStart(str(error), error.fix) from error


def bind(listen: Listen) -> socket.socket:
    """Bind the address. Called before anything else, because the usual mistake is two servers on one address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        fix = _bind_fix(listen, error.errno)
        raise CannotStart(f"cannot listen on {listen.host}:{listen.port}: {why}", fix) from error
    return bound


def _bind_fix(listen: Listen, number: int | None) -> str:
    if number == errno.EADDRINUSE:
        free = f"--listen {listen.host}:{listen.port + 1 if listen.port < 65535 else 7070}"
        return f"Stop the process that uses it, or choose another address: {free}"
    if number == errno.EACCES:
        return f"Ports below 1024 need root or CAP_NET_BIND_SERVICE; or choose another: --listen {listen.host}:7443"
    return "Choose an address of this machine, which has these: ip -brief address"


def sweeps(site: Site) -> list[tuple[str, float, Sweep]]:
    """Return the topic, the interval in seconds and the function of each loop, without that of the signed heads."""
    often_s = site.settings.sweep_interval_s
    deleted = functools.partial(secrets_reconcile.end_secrets_of_deleted, site)
    content, content_s = artifacts_reconcile.ContentSweep(site).sweep, site.settings.artifact_sweep_interval_s
    return [
        (artifacts_reconcile.TOPIC, often_s, _deleting(site, functools.partial(artifacts_reconcile.sweep, site))),
        (nodes_reconcile.TOPIC, often_s, functools.partial(nodes_reconcile.sweep, site)),
        (ssh_authority.TOPIC, often_s, functools.partial(ssh_authority.sweep, site)),
        (secrets_reconcile.TOPIC, often_s, functools.partial(secrets_reconcile.sweep, site)),
        (operations_reconcile.TOPIC, often_s, functools.partial(operations_reconcile.sweep, site)),
        (grants_reconcile.TOPIC, often_s, functools.partial(grants_reconcile.sweep, site)),
        (retention.TOPIC, often_s, _deleting(site, functools.partial(forget_old_rows, site))),
        (allocations_reconcile.TOPIC, often_s, allocations_reconcile.Sweep(site).sweep),
        (people_reconcile.TOPIC, people_reconcile.INTERVAL_S, functools.partial(people_reconcile.sweep, site)),
        (secrets_reconcile.DELETED_TOPIC, secrets_reconcile.DELETED_SWEEP_S, deleted),
        (artifacts_reconcile.CONTENT_TOPIC, content_s, _deleting(site, content)),
        (record_refusals.TOPIC, often_s, functools.partial(record_refusals.sweep, site)),
        *_sanitise_sweeps(site),
    ]


def _sanitise_sweeps(site: Site) -> list[tuple[str, float, Sweep]]:
    """Return the loop that has nodes reinstalled, which deletes their disks; none without a provisioner."""
    if not site.settings.sanitise_url:
        return []
    sanitise = sanitise_reconcile.Sweep(site, open_provisioner(site.settings))
    return [(sanitise_reconcile.TOPIC, site.settings.sanitise_poll_s, _deleting(site, sanitise.sweep))]


@contextlib.asynccontextmanager
async def loops(site: Site) -> AsyncIterator[None]:
    signer = heads_signer(site)
    signing = (record_heads.TOPIC, site.settings.audit_head_interval_s, signer.sweep)
    try:
        async with _running(site, [*sweeps(site), signing]):
            yield
    finally:
        await record_refusals.flush(site)
        await signer.sweep()


@contextlib.asynccontextmanager
async def _running(site: Site, table: Sequence[tuple[str, float, Sweep]]) -> AsyncIterator[None]:
    tasks = [
        asyncio.create_task(loop.run(site.hub, topic, interval_s, sweep), name=topic)
        for topic, interval_s, sweep in table
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _deleting(site: Site, sweep: Sweep) -> Sweep:
    """Return a sweep that deletes nothing while the clock is not trusted, because a deletion cannot be undone."""

    async def guarded() -> None:
        site.clock()
        if site.clock.jump_s:
            raise loop.Later("the right time: the clock jumped, so nothing old is deleted")
        await sweep()

    return guarded


async def forget_old_rows(site: Site) -> None:
    await retention.sweep(site.database, site.settings, site.clock(), RETAINED)


def heads_signer(site: Site) -> record_heads.Signer:
    folder = record_heads.folder_in(site.settings.data_dir)
    return record_heads.Signer(site.database.reader, folder, site.keys.audit, site.clock)


def _gauges(guarded: clock.GuardedClock, pinned: tls.Pinned) -> list[Gauge]:
    jump = "How far the wall clock jumped; 0 while it is trusted."
    left = "Remaining lifetime of the TLS authority that clients pin."
    return [
        Gauge("gpuaas_clock_jump_seconds", jump, lambda: guarded.jump_s),
        Gauge("gpuaas_tls_authority_expires_in_seconds", left, lambda: (pinned.ends_at - guarded()).total_seconds()),
    ]


def _collect_seldom() -> None:
    """Run the garbage collector rarely: requests make few reference cycles, and all loaded objects stay in use."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS_UNTIL_COLLECTION)


def _map_large_blocks() -> None:
    """Make glibc use mmap for large blocks. A TLS connection has a buffer of 256 KB and uses one page of it. By default
    glibc soon takes such blocks from its heap, where all pages that were used before stay in memory. With many nodes,
    that is a third of the server's memory."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


async def _serve_all(
    application: http.Application, site: Site, listens: Sequence[Listen], sockets: Sequence[socket.socket]
) -> None:
    descriptors.raise_limit()
    authority = tls.load_authority(_keys_folder(site.settings), site.clock())
    shown = certificates.Certificates(authority, site.clock)
    with _tls_failures():
        contexts = [
            shown.context(listen.host, _given(site.settings)) if listen.encrypted else None for listen in listens
        ]
    pairs = zip(listens, contexts, strict=True)
    servers = [_server(application, site, listen, context) for listen, context in pairs]
    site.gauges.extend(shown.gauges())

    def stop() -> None:
        site.hub.close()
        for server in servers:
            server.should_exit = True

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    for listen in listens:
        log.info("server.listening", url=listen.url)
    bound_servers = zip(servers, sockets, strict=True)
    async with _running(site, [(certificates.TOPIC, certificates.LOOK_S, shown.renew)]):
        await asyncio.gather(*(server.serve(sockets=[bound]) for server, bound in bound_servers))


class _Server(uvicorn.Server):
    """A uvicorn server with our own acceptor, and without signal handling: several of them share one process, and
    `_serve_all` stops them."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        config, descriptor_max = self.config, descriptors.for_connections()
        make_protocol = functools.partial(
            listener.Protocol, config, server_state=self.server_state, app_state=self.lifespan.state
        )
        acceptors = [Acceptor(bound, make_protocol, config.ssl, descriptor_max) for bound in sockets or ()]
        for acceptor in acceptors:
            acceptor.start(config.backlog)
        self.servers = acceptors  # type: ignore[assignment]
        self.started = True

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _server(
    application: http.Application, site: Site, listen: Listen, context: ssl.SSLContext | None = None
) -> _Server:
    config = uvicorn.Config(
        application,
        host=listen.host,
        port=listen.port,
        log_config=None,
        lifespan="off",
        access_log=False,
        http=listener.Protocol,
        ws="none",
        server_header=False,
        proxy_headers=False,
        ssl_context_factory=(lambda *_: context) if context is not None else None,
        # A node keeps its connection between heartbeats, until it is lost.
        timeout_keep_alive=math.ceil(site.settings.node_lost_after_s),
        timeout_graceful_shutdown=2,
    )
    return _Server(config)


def _pinned(settings: Settings, now: datetime.datetime) -> tls.Pinned:
    """Return the authority that clients pin. The platform's own is also made if the operator gives another."""
    own, file = tls.load_authority(_keys_folder(settings), now), settings.tls_authority_file
    with _tls_failures():
        return tls.Pinned(x509.load_pem_x509_certificate(file.read_bytes())) if file is not None else own


@contextlib.contextmanager
def _tls_failures() -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        fix = "Check --tls-certificate-file, --tls-key-file and --tls-authority-file: PEM files that belong together"
        raise CannotStart(f"cannot use the TLS certificate: {error}", fix) from error


def _given(settings: Settings) -> certificates.Given | None:
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    return certificates.Given(certificate, key) if certificate is not None and key is not None else None


async def _open_database(settings: Settings, wakes: hub.Hub) -> db.Database:
    _open_folder(settings)
    with _store_failures(settings):
        if settings.database_url:
            await migrate.migrate_postgres(settings.database_url)
            return await postgres.PostgresDatabase.connect(settings.database_url, wakes.notify, wakes.notify_all)
        migrate.migrate_sqlite(settings.sqlite_path)
        return sqlite.SqliteDatabase(settings.sqlite_path, wakes.notify)


def _open_folder(settings: Settings) -> None:
    try:
        private.open_folder(settings.data_dir, None if settings.database_url else settings.sqlite_path)
    except OSError as error:
        fix = "Check --data: a folder of its own that only the user of this process may read (chmod 700)"
        raise CannotStart(f"cannot use the data folder: {error}", fix) from error


@contextlib.contextmanager
def _store_failures(settings: Settings) -> Iterator[None]:
    """Turn an error while the store is opened into `CannotStart`, with a hint what to check."""
    url, fix = settings.database_url, "Check --data: a writable folder, empty or with a database of this platform"
    try:
        yield
    except (migrate.NewerDatabase, migrate.NotAlone, *_STORE_FAILED) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        exit_code = 2
        if url:
            fix = "Check --database: postgresql://USER@HOST:PORT/NAME"
            passes = isinstance(error, (OSError, asyncpg.PostgresError, migrate.NotAlone))
            exit_code = CannotStart.TRY_AGAIN if passes else 2
        if isinstance(error, (migrate.NewerDatabase, migrate.NotAlone)):
            fix = error.fix
        name = postgres.shown(url) if url else str(settings.data_dir)
        raise CannotStart(f"cannot open the store {name}: {why}", fix, exit_code) from error


def _health_checks(settings: Settings, database: db.Database, guarded: clock.GuardedClock) -> dict[str, health.Check]:
    return {
        "clock": health.clock_check(guarded),
        "store": health.Shared(health.store_check(database, guarded), settings.ready_interval_s),
        "disk": health.disk_check(settings.data_dir),
    }


def _open_custody(settings: Settings, database: db.Database) -> custody.SecretStore:
    try:
        return _vault(settings) if settings.vault_address else EmbeddedCustody.opened(settings, database)
    except custody.CustodyError as error:
        raise CannotStart("cannot open the store of secrets", str(error)) from error


def _vault(settings: Settings) -> custody.SecretStore:
    """Return the custody in Vault. Imported only if it is configured, because its client is an optional package."""
    try:
        module = importlib.import_module("gpuaas_platform.custody.vault")
    except ImportError as error:
        raise custody.Unavailable("the package hvac is missing; install gpuaas-platform[vault]") from error
    store: custody.SecretStore = module.VaultCustody(settings)
    return store


def open_provisioner(settings: Settings) -> HttpProvisioner:
    try:
        assert settings.sanitise_token_file is not None
        return HttpProvisioner(settings.sanitise_url, settings.sanitise_token_file, settings.sanitise_ca_file)
    except (ValueError, OSError, httpx.InvalidURL) as error:
        raise CannotStart(
            f"cannot use the provisioner: {error}", "Check --sanitise-url and --sanitise-ca-file"
        ) from error


def _openid_provider(settings: Settings) -> openid.Provider | None:
    if not settings.oidc_issuer:
        return None
    file = settings.oidc_client_secret_file
    secret = file.read_text().strip() if file else ""
    return openid.Provider(settings.oidc_issuer, settings.oidc_client_id, secret, settings.oidc_redirect_url)


def _keys_folder(settings: Settings) -> Path:
    folder = settings.data_dir / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
