"""Replicas of a controller on a real server, with the helpers of the platform's tests and of the recorded walk."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from gpuaas_platform.kit import ids

sys.path.insert(0, str(Path(__file__).parents[1] / "walk"))


@pytest.fixture
def postgres_url() -> Iterator[str]:
    parent, name = postgres_server.new_folder(), ids.new("db")
    with postgres_server.running(parent / "pg"):
        postgres_server.create_database(parent / "pg", name)
        yield f"postgresql://postgres@/{name}?host={parent / 'pg'}"
    shutil.rmtree(parent)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))
