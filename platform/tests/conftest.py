"""Fixtures of the platform's tests: one site on each engine, and the web application over it."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import argon2
import httpx
import hypothesis
import postgres_server
import pytest
import signed_releases
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import http, streams
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import health, ids, migrate
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, World
from reused_database import ReusedDatabase

# How long an example takes depends on the host, not on the code; a failing example is in the report.
hypothesis.settings.register_profile(
    "any host", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any host")


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    parent = postgres_server.new_folder()
    with postgres_server.running(parent / "pg"):
        yield parent / "pg"
    shutil.rmtree(parent)


@pytest.fixture(scope="session")
def migrated_postgres(postgres_folder: Path) -> str:
    """The name of a database with every migration: to copy it takes a tenth of the time that applying them takes."""
    name = ids.new("db")
    postgres_server.create_database(postgres_folder, name)
    asyncio.run(migrate.migrate_postgres(f"postgresql://postgres@/{name}?host={postgres_folder}"))
    return name


@pytest.fixture(scope="session")
def reused_postgres(postgres_folder: Path, migrated_postgres: str) -> Iterator[ReusedDatabase]:
    reused = ReusedDatabase(postgres_folder, migrated_postgres)
    yield reused
    reused.close()


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "gpuaas.sqlite"
    migrate.migrate_sqlite(path)
    return path


@pytest.fixture(scope="session", autouse=True)
def cheap_passwords() -> Iterator[None]:
    """The same algorithm with little memory: hundreds of tests sign in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(passwords, "hasher", argon2.PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_checks() -> Iterator[None]:
    """On a busy host the store takes longer than an operator puts up with; what then happens has tests of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(health, "ANSWER_S_MAX", 60.0)
        patch.setattr(streams, "CHECK_S_MAX", 60.0)
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test that uses the store runs on both engines. It is empty, except for a test that gets an open site."""
    if request.param == "sqlite":
        yield ""
        return
    if "site" in request.fixturenames:
        reused: ReusedDatabase = request.getfixturevalue("reused_postgres")
        yield reused.take()
        reused.give_back()
        return
    folder: Path = request.getfixturevalue("postgres_folder")
    name = ids.new("db")
    postgres_server.create_database(folder, name)
    yield f"postgresql://postgres@/{name}?host={folder}"
    postgres_server.drop_database(folder, name)


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    # Tests send faster than any caller may; what the limits do has tests of its own.
    return Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
        rate_limit_per_s=0,
        node_rate_limit_per_s=0,
        agent_release_keys=(signed_releases.public_pem(),),
    )


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def site(settings: Settings, clock: FakeClock, migrated_sqlite: Path) -> AsyncIterator[Site]:
    if not settings.database_url and not settings.sqlite_path.exists():
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(migrated_sqlite, settings.sqlite_path)
    async with server.open_site(settings, clock) as open_site:
        yield open_site


@pytest.fixture
async def world(site: Site, clock: FakeClock) -> AsyncIterator[World]:
    """A platform with an admin, reached over HTTP without a socket."""
    application = http.application(site, server.DOMAINS)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield await World.make(site, clock, client)
