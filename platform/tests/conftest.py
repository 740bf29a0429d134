"""Fixtures of the platform's tests: one site on each engine, and the web application over it."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import argon2
import httpx
import hypothesis
import postgres_server
import pytest
from gpuaas_platform import server
from gpuaas_platform.call import Site
from gpuaas_platform.edge import health, http, streams
from gpuaas_platform.identity.users import passwords
from gpuaas_platform.kit import ids
from gpuaas_platform.kit.settings import Settings
from platform_world import FakeClock, World

# How long an example takes says something of the host and nothing of the code; what was found once is in the report.
hypothesis.settings.register_profile(
    "any host", deadline=None, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any host")


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    parent = Path(tempfile.mkdtemp(prefix="gpuaas-pg-"))
    parent.chmod(0o755)
    with postgres_server.running(parent / "pg"):
        yield parent / "pg"
    shutil.rmtree(parent)


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
        patch.setattr(health, "STORE_ANSWERS_WITHIN_S", 60.0)
        patch.setattr(streams, "CHECK_S_MAX", 60.0)
        yield


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Every test that uses the store runs on both engines."""
    if request.param == "sqlite":
        return ""
    folder: Path = request.getfixturevalue("postgres_folder")
    name = ids.new("db")
    postgres_server.create_database(folder, name)
    return f"postgresql://postgres@/{name}?host={folder}"


@pytest.fixture
def settings(tmp_path: Path, database_url: str) -> Settings:
    # Tests send faster than any caller may; what the limits do has tests of its own.
    return Settings(data_dir=tmp_path / "data", database_url=database_url, rate_limit_per_s=0, node_rate_limit_per_s=0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def site(settings: Settings, clock: FakeClock) -> AsyncIterator[Site]:
    async with server.open_site(settings, clock) as opened:
        yield opened


@pytest.fixture
async def world(site: Site, clock: FakeClock) -> AsyncIterator[World]:
    """A platform with an admin, reached over HTTP without a socket."""
    application = http.application(site, server.DOMAINS)
    transport = httpx.ASGITransport(app=application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield await World.make(site, clock, client)
