"""A store as the first release left it, for tests of what migrations carry over."""

import sqlite3
from pathlib import Path

import asyncpg
from gpuaas_platform.kit import migrate


async def first_schema(path: Path, database_url: str, *rows: str) -> None:
    """`rows` are statements that fill it."""
    engine = "postgres" if database_url else "sqlite"
    statements = next(found for number, found in migrate._files(engine) if number == 1)
    script = [migrate._LEDGER, *statements, "INSERT INTO migrations (number) VALUES (1)", *rows]
    if database_url:
        connection = await asyncpg.connect(database_url)
        await connection.execute(";\n".join(script))
        await connection.close()
        return
    store = sqlite3.connect(path)
    store.executescript(";\n".join(script))
    store.close()
