"""A store as an older release left it, for tests of what migrations carry over."""

import sqlite3
from pathlib import Path

import asyncpg
from gpuaas_platform.kit import migrate


async def first_schema(path: Path, database_url: str, *rows: str) -> None:
    """`rows` are statements that fill it."""
    await schema_before(2, path, database_url, *rows)


async def schema_before(number: int, path: Path, database_url: str, *rows: str) -> None:
    """As it was before the migration of this number."""
    script = [migrate._LEDGER]
    for migration, statements in migrate.files("postgres" if database_url else "sqlite"):
        if migration < number:
            script += [*statements, f"INSERT INTO migrations (number) VALUES ({migration})"]
    script += rows
    if database_url:
        connection = await asyncpg.connect(database_url)
        await connection.execute(";\n".join(script))
        await connection.close()
        return
    store = sqlite3.connect(path)
    store.executescript(";\n".join(script))
    store.close()
