"""A test gets an empty database also if the test before used the same one and changed everything in it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from gpuaas_platform.kit import postgres
from reused_database import ReusedDatabase

EVENT = "INSERT INTO events (scope, instance_id, correlation_id, document) VALUES ('', '', '', '{}') RETURNING cursor"
CHANGES = ["UPDATE store_probe SET written_at = 7", "DELETE FROM migrations", EVENT, EVENT]


@pytest.fixture
def reused(postgres_folder: Path, migrated_postgres: str) -> Iterator[ReusedDatabase]:
    database = ReusedDatabase(postgres_folder, migrated_postgres)
    yield database
    database.close()


def test_what_a_test_changed_is_undone_and_cursors_start_again(reused: ReusedDatabase) -> None:
    before = asyncio.run(_content(reused.take()))
    reused.give_back()
    asyncio.run(_execute(url := reused.take(), *CHANGES))
    reused.give_back()
    assert (reused.take(), asyncio.run(_content(url))) == (url, before)
    assert asyncio.run(_execute(url, EVENT)) == [[(1,)]]
    reused.give_back()


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE other (id INTEGER)",
        "ALTER TABLE events RENAME TO moments",
        "ALTER TABLE events ADD COLUMN more TEXT",
        "DROP INDEX events_by_project",
    ],
)
def test_a_database_whose_schema_changed_is_not_used_again(reused: ReusedDatabase, change: str) -> None:
    before = asyncio.run(_content(url := reused.take()))
    asyncio.run(_execute(url, change))
    reused.give_back()
    assert reused.take() != url
    assert asyncio.run(_content(reused.take())) == before
    reused.give_back()


def test_a_connection_that_was_left_open_does_not_reach_into_the_next_test(reused: ReusedDatabase) -> None:
    asyncio.run(_left_open(reused))


async def _left_open(reused: ReusedDatabase) -> None:
    connection = await asyncpg.connect(await asyncio.to_thread(reused.take))
    await connection.execute(f"BEGIN; {EVENT}")
    await asyncio.to_thread(reused.give_back)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError, asyncpg.AdminShutdownError)):
        await connection.execute("COMMIT")


async def _execute(url: str, *statements: str) -> list[list[tuple[object, ...]]]:
    async with postgres.connected(url) as connection:
        return [[tuple(row) for row in await connection.fetch(statement)] for statement in statements]


async def _content(url: str) -> dict[str, list[tuple[object, ...]]]:
    (tables,) = await _execute(url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    names = [str(table) for (table,) in tables]
    return dict(zip(names, await _execute(url, *(f"SELECT * FROM {name}" for name in names)), strict=True))
