"""Numbered SQL files, each applied once, in one transaction, at start. Running them again does nothing.

The files are written for both engines; the few words that differ are replaced by `_DIALECT`.
"""

import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import asyncpg

from gpuaas_platform.kit import postgres, sqlite

_DIALECT = {
    "sqlite": {
        "{{cursor}}": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "{{random}}": "lower(hex(randomblob(16)))",
        "{{document.size_bytes}}": "json_extract(document, '$.size_bytes')",
        "{{document.app_slug}}": "json_extract(document, '$.app_slug')",
        "{{document.last_seen_at}}": "strftime('%s', json_extract(document, '$.last_seen_at')) * 1000000",
        "{{document.org_id}}": "json_extract(document, '$.org_id')",
        "{{document.node_name}}": "json_extract(document, '$.node_name')",
    },
    "postgres": {
        "{{cursor}}": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "{{random}}": "replace(gen_random_uuid()::text, '-', '')",
        "{{document.size_bytes}}": "(document::json ->> 'size_bytes')::bigint",
        "{{document.app_slug}}": "document::json ->> 'app_slug'",
        "{{document.last_seen_at}}": "extract(epoch FROM (document::json ->> 'last_seen_at')::timestamptz) * 1000000",
        "{{document.org_id}}": "(document::json ->> 'org_id')",
        "{{document.node_name}}": "(document::json ->> 'node_name')",
    },
}
_LEDGER = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)"


def migrate_sqlite(path: Path) -> None:
    sqlite.migrate(path, _apply_sqlite)


async def migrate_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", postgres.WRITER_LOCK)
            await connection.execute(_LEDGER)
            done = {row["number"] for row in await connection.fetch("SELECT number FROM migrations")}
            for number, statements in _files("postgres"):
                if number not in done:
                    await connection.execute(";\n".join(statements))
                    await connection.execute("INSERT INTO migrations (number) VALUES ($1)", number)
    finally:
        await connection.close()


def _apply_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_LEDGER)
    done = {row["number"] for row in connection.execute("SELECT number FROM migrations")}
    for number, statements in _files("sqlite"):
        if number not in done:
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations (number) VALUES (?)", (number,))
    connection.execute("COMMIT")


def _files(engine: str) -> Iterator[tuple[int, list[str]]]:
    folder = resources.files("gpuaas_platform") / "migrations"
    for file in sorted(folder.iterdir(), key=lambda found: found.name):
        if file.name.endswith(".sql"):
            text = file.read_text()
            for word, replacement in _DIALECT[engine].items():
                text = text.replace(word, replacement)
            yield int(file.name.split("_")[0]), [part for part in text.split(";") if part.strip()]
