"""Fixtures of backups: a key pair, and an empty target on the engine of the source."""

from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from backup_lab import Backups
from gpuaas_platform.kit import ids
from gpuaas_platform.kit.settings import Settings


@pytest.fixture
def target(request: pytest.FixtureRequest, settings: Settings, tmp_path: Path) -> Iterator[Settings]:
    if not settings.database_url:
        yield Settings(data_dir=tmp_path / "restored", rate_limit_per_s=0)
        return
    folder: Path = request.getfixturevalue("postgres_folder")
    name = ids.new("db")
    postgres_server.create_database(folder, name)
    url = f"postgresql://postgres@/{name}?host={folder}"
    yield Settings(data_dir=tmp_path / "restored", database_url=url, rate_limit_per_s=0)
    postgres_server.drop_database(folder, name)


@pytest.fixture
async def backups(settings: Settings, target: Settings, tmp_path: Path) -> Backups:
    return await Backups.prepared(settings, target, tmp_path)
