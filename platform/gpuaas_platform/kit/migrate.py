"""Numbered SQL files, each applied once, in one transaction, at start. Running them again does nothing.

The files are written for both engines. `{{…}}` marks what the engines write differently; `_translated` replaces it.
A database that has migrations unknown to this release is refused before anything is changed: see `check_not_newer`.
"""

import re
import sqlite3
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import asyncpg

from gpuaas_platform.kit import postgres, sqlite

_WORDS = {
    "sqlite": {
        "cursor": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "item": "item.value",
        "position": "item.key + 1",
        "random": "lower(hex(randomblob(16)))",
    },
    "postgres": {
        "cursor": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        "item": "item.value::text",
        "position": "item.place",
        "random": "replace(gen_random_uuid()::text, '-', '')",
    },
}
_FIELDS = {
    "sqlite": {
        "text": "json_extract(document, '$.{path}')",
        "bigint": "json_extract(document, '$.{path}')",
        "moment": "strftime('%s', json_extract(document, '$.{path}')) * 1000000",
        "length": "json_array_length(document, '$.{path}')",
    },
    "postgres": {
        "text": "(document::json #>> '{{{keys}}}')",
        "bigint": "(document::json #>> '{{{keys}}}')::bigint",
        "moment": "(extract(epoch FROM (document::json #>> '{{{keys}}}')::timestamptz) * 1000000)",
        "length": "json_array_length(document::json #> '{{{keys}}}')",
    },
}
"""A field of a row's JSON document: `{{document PATH}}` is text, `{{document PATH as bigint}}` a number, `as moment`
microseconds since 1970 of a timestamp, `as length` the number of items of a list."""
_LISTS = {
    "sqlite": {"each": "json_each(document, '$.{name}') AS item", "item": "json_extract(item.value, '$.{name}')"},
    "postgres": {
        "each": "json_array_elements(document::json -> '{name}') WITH ORDINALITY AS item(value, place)",
        "item": "(item.value ->> '{name}')",
    },
}
"""Items of a list in a row's document: `{{each NAME}}` is for FROM, `{{item}}` is an item as text, `{{item NAME}}` a
field of it, `{{position}}` its number from 1."""
_MARK = re.compile(
    r"\{\{\s*(?:(?P<word>\w+)|(?P<list>each|item) (?P<name>\w+)|without (?P<without>[\w ]+)"
    r"|document (?P<path>[\w.]+)(?: as (?P<form>\w+))?)\s*\}\}"
)
_COMMENT = re.compile(r"--[^\n]*")
_LEDGER = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)"
_APPLIED = "SELECT number FROM migrations"


class NewerDatabase(Exception):
    """The database was migrated by a newer release. `fix` is what to do."""

    fix = "Run the newer release of gpuaas-platform, or restore the backup that was made before the upgrade."

    def __init__(self, unknown: set[int]) -> None:
        numbers = ", ".join(str(number) for number in sorted(unknown))
        super().__init__(
            f"a newer release changed the database (migration {numbers}, which this release does not have)"
        )


async def check_not_newer(sqlite_path: Path, database_url: str) -> None:
    """Raise `NewerDatabase` if the database has migrations this release does not know. Changes nothing."""
    applied = await _applied_postgres(database_url) if database_url else _applied_sqlite(sqlite_path)
    _check_known(applied)


def migrate_sqlite(path: Path) -> None:
    sqlite.migrate(path, _apply_sqlite)


async def migrate_postgres(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", postgres.WRITER_LOCK)
            await connection.execute(_LEDGER)
            applied = {row["number"] for row in await connection.fetch(_APPLIED)}
            _check_known(applied)
            for number, statements in files("postgres"):
                if number not in applied:
                    for statement in statements:
                        await connection.execute(statement)
                    await connection.execute("INSERT INTO migrations (number) VALUES ($1)", number)
    finally:
        await connection.close()


def files(engine: str) -> Iterator[tuple[int, list[str]]]:
    """The number and the statements of each migration, in order."""
    folder, known = resources.files("gpuaas_platform") / "migrations", set[int]()
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if re.fullmatch(r"\d{4}_\w+\.sql", file.name):
            number = int(file.name[:4])
            if number in known:
                raise ValueError(f"two migrations have the number {number}")
            known.add(number)
            yield number, statements_of(_translated(file.read_text(), engine))


def statements_of(script: str) -> list[str]:
    """Split a script at the semicolons that end statements; those inside strings and comments are kept."""
    statements, part = [], ""
    for piece in re.split(r"(?<=;)", script):
        part += piece
        if sqlite3.complete_statement(part):
            statements.append(part.strip())
            part = ""
    if _COMMENT.sub("", part).strip():
        statements.append(part.strip())
    return [statement for statement in statements if _COMMENT.sub("", statement).strip(" \n;")]


def _apply_sqlite(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_LEDGER)
    applied = {row["number"] for row in connection.execute(_APPLIED)}
    _check_known(applied)
    for number, statements in files("sqlite"):
        if number not in applied:
            for statement in statements:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations (number) VALUES (?)", (number,))
    connection.execute("COMMIT")


def _applied_sqlite(path: Path) -> set[int]:
    if not path.exists():
        return set()
    # Without a log beside it no process has the file open, and reading it as immutable leaves no new files behind.
    mode = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True)
    try:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
            return set()
        return {row[0] for row in connection.execute(_APPLIED)}
    finally:
        connection.close()


async def _applied_postgres(url: str) -> set[int]:
    connection = await asyncpg.connect(url)
    try:
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return set()
        return {row["number"] for row in await connection.fetch(_APPLIED)}
    finally:
        await connection.close()


def _check_known(applied: set[int]) -> None:
    unknown = applied - {number for number, _ in files("sqlite")}
    if unknown:
        raise NewerDatabase(unknown)


def _translated(text: str, engine: str) -> str:
    def translate(mark: re.Match[str]) -> str:
        if mark["word"]:
            return _WORDS[engine][mark["word"]]
        if mark["list"]:
            return _LISTS[engine][mark["list"]].format(name=mark["name"])
        if mark["without"]:
            return _without(mark["without"].split(), engine)
        form = _FIELDS[engine][mark["form"] or "text"]
        return form.format(path=mark["path"], keys=mark["path"].replace(".", ","))

    return _MARK.sub(translate, text)


def _without(names: list[str], engine: str) -> str:
    """`{{without NAME NAME}}`: the document without these fields."""
    if engine == "sqlite":
        paths = ", ".join(f"'$.{name}'" for name in names)
        return f"json_remove(document, {paths})"
    left_out = ", ".join(f"'{name}'" for name in names)
    fields = f"json_each(document::json) AS field WHERE field.key NOT IN ({left_out})"
    return f"(SELECT json_object_agg(field.key, field.value)::text FROM {fields})"  # noqa: S608 - names are ours
