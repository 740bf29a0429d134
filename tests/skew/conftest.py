"""Releases of the platform side by side, with the helpers of the platform's tests."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "tests"))

import postgres_server
import pytest
import releases
from gpuaas_platform.kit import ids


@pytest.fixture(scope="session")
def previous(tmp_path_factory: pytest.TempPathFactory) -> releases.Release:
    """The release before this one."""
    missing = releases.why_missing()
    if missing:
        pytest.skip(missing)
    return releases.unpack(tmp_path_factory.mktemp("previous"))


@pytest.fixture(scope="session")
def postgres_folder() -> Iterator[Path]:
    parent = postgres_server.new_folder()
    with postgres_server.running(parent / "pg"):
        yield parent / "pg"
    shutil.rmtree(parent)


@pytest.fixture
def postgres_url(postgres_folder: Path) -> str:
    name = ids.new("db")
    postgres_server.create_database(postgres_folder, name)
    return f"postgresql://postgres@/{name}?host={postgres_folder}"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
