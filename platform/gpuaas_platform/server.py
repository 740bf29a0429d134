"""Put the parts together: store, keys, routes, loops, listeners. `main` calls `serve`; tests call `open_site`."""

import asyncio
import contextlib
import functools
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn
from starlette.applications import Starlette

from gpuaas_platform import tls
from gpuaas_platform.call import Routes, Site
from gpuaas_platform.capacity import reconcile as capacity_reconcile
from gpuaas_platform.capacity.routes import routes as capacity_routes
from gpuaas_platform.catalog.routes import routes as catalog_routes
from gpuaas_platform.edge import http
from gpuaas_platform.identity.routes import routes as identity_routes
from gpuaas_platform.instances import reconcile as instances_reconcile
from gpuaas_platform.instances.routes import routes as instances_routes
from gpuaas_platform.kit import clock, db, hub, keys, loop, migrate, postgres, sqlite
from gpuaas_platform.kit.settings import Settings
from gpuaas_platform.record.routes import routes as record_routes

log = structlog.get_logger()

DOMAINS: tuple[Routes, ...] = (record_routes, identity_routes, catalog_routes, capacity_routes, instances_routes)


@dataclass(frozen=True)
class Listen:
    host: str
    port: int
    encrypted: bool
    """Everything but loopback is."""


@contextlib.asynccontextmanager
async def open_site(settings: Settings, now: clock.Clock = clock.utc_now) -> AsyncIterator[Site]:
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    wakes = hub.Hub()
    database = await _open_database(settings, wakes)
    authority = tls.load_authority(_keys_folder(settings), now())
    try:
        yield Site(
            settings=settings,
            database=database,
            hub=wakes,
            keys=keys.load(_keys_folder(settings)),
            clock=now,
            ca_pem=authority.pem,
            ca_sha256=authority.sha256,
        )
    finally:
        await database.close()


async def serve(settings: Settings, listens: tuple[Listen, ...]) -> None:
    async with open_site(settings) as site, loops(site):
        application = http.application(site, DOMAINS)
        servers = [_server(application, site, listen) for listen in listens]
        stop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            stop.add_signal_handler(number, _ask_to_exit, site, servers)
        for listen in listens:
            scheme = "https" if listen.encrypted else "http"
            log.info("listening", url=f"{scheme}://{listen.host}:{listen.port}")
        await asyncio.gather(*(server.serve() for server in servers))


@contextlib.asynccontextmanager
async def loops(site: Site) -> AsyncIterator[None]:
    sweeps = {
        capacity_reconcile.TOPIC: capacity_reconcile.sweep,
        instances_reconcile.TOPIC: instances_reconcile.sweep,
    }
    tasks = [
        asyncio.create_task(
            loop.run(site.hub, topic, site.settings.sweep_interval_s, functools.partial(sweep, site)), name=topic
        )
        for topic, sweep in sweeps.items()
    ]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Server(uvicorn.Server):
    """Several listeners share one process, so none of them takes the signals for itself."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield


def _server(application: Starlette, site: Site, listen: Listen) -> _Server:
    key_path: Path | None = None
    certificate_path: Path | None = None
    if listen.encrypted:
        folder = _keys_folder(site.settings)
        authority = tls.load_authority(folder, site.clock())
        key_path, certificate_path = tls.issue_server_certificate(authority, folder, listen.host, site.clock())
    return _Server(
        uvicorn.Config(
            application,
            host=listen.host,
            port=listen.port,
            log_config=None,
            access_log=False,
            ssl_keyfile=key_path,
            ssl_certfile=certificate_path,
            timeout_graceful_shutdown=2,
        )
    )


def _ask_to_exit(site: Site, servers: list[_Server]) -> None:
    site.hub.close()
    for server in servers:
        server.should_exit = True


async def _open_database(settings: Settings, wakes: hub.Hub) -> db.Database:
    if settings.database_url:
        await migrate.migrate_postgres(settings.database_url)
        return await postgres.PostgresDatabase.connect(settings.database_url, wakes.notify)
    path = settings.data_dir / "gpuaas.sqlite"
    migrate.migrate_sqlite(path)
    return sqlite.SqliteDatabase(path, wakes.notify)


def _keys_folder(settings: Settings) -> Path:
    folder = settings.data_dir / "keys"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
