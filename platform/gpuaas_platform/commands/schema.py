"""`python -m gpuaas_platform.commands.schema`: write or check the golden schemas that people read.

SQLite needs nothing. PostgreSQL needs an empty database, `--database postgresql://…`; without it only SQLite is
handled.
"""

import argparse
import asyncio
import sqlite3
import sys
import tempfile
import tomllib
from importlib import resources
from pathlib import Path

import asyncpg

from gpuaas_platform.kit import migrate, schema

_WRITE = "python -m gpuaas_platform.commands.schema --write"
_RENEW = {"sqlite": _WRITE, "postgres": f"{_WRITE} --database postgresql://USER@HOST/EMPTY"}
_FOLDER = resources.files("gpuaas_platform") / "migrations"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m gpuaas_platform.commands.schema", description=__doc__)
    act = parser.add_mutually_exclusive_group(required=True)
    act.add_argument("--write", action="store_true", help="write the schemas after a new migration")
    act.add_argument("--check", action="store_true", help="fail if a schema differs from what the migrations make")
    parser.add_argument("--database", default="", help="URL of an empty PostgreSQL database; empty: SQLite only")
    options = parser.parse_args()
    made = {"sqlite": sqlite_schema()}
    if options.database:
        made["postgres"] = asyncio.run(postgres_schema(options.database))
    sys.exit(max(_handle(engine, text, is_written=options.write) for engine, text in made.items()))


def golden(engine: str) -> Path:
    return Path(str(_FOLDER / f"schema.{engine}.sql"))


def descriptions() -> dict[str, schema.Description]:
    """Owner and meaning of each table, from `migrations/tables.toml`."""
    tables = tomllib.loads((_FOLDER / "tables.toml").read_text())
    return {name: schema.Description(table["owner"], table["row"]) for name, table in tables.items()}


def sqlite_schema() -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "schema.sqlite"
        migrate.migrate_sqlite(path)
        connection = sqlite3.connect(path)
        try:
            return schema.printed("SQLite", schema.of_sqlite(connection), descriptions())
        finally:
            connection.close()


async def postgres_schema(url: str) -> str:
    await migrate.migrate_postgres(url)
    connection = await asyncpg.connect(url)
    try:
        return schema.printed("PostgreSQL", await schema.of_postgres(connection), descriptions())
    finally:
        await connection.close()


def _handle(engine: str, text: str, *, is_written: bool) -> int:
    path = golden(engine)
    if is_written:
        path.write_text(text)
        return 0
    if path.exists() and path.read_text() == text:
        return 0
    sys.stderr.write(f"{path} differs from what the migrations make. Renew it: {_RENEW[engine]}\n")
    return 1


if __name__ == "__main__":
    main()
