"""Migrate the database at start: apply the numbered SQL files that are not applied yet, in one transaction.

The files are for both engines. `_translated` replaces the marks `{{…}}` with SQL of the engine.
A database with migrations that this release does not have is refused before any change: see `check_not_newer`.

A migration only adds, so that servers of the release before can continue on the result until they are upgraded too. A
migration that cannot do so has a line `-- alone: REASON`, and is not applied while others are connected.
"""

import contextlib
import re
import sqlite3
from collections.abc import Iterable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from gpuaas_platform.kit import postgres, sqlite

_ENGINES = ("sqlite", "postgres")
_FIELD = ("json_extract(document, '$.{path}')", "(document::json #>> '{{{keys}}}')")
_MARKS = {
    "cursor": ("INTEGER PRIMARY KEY AUTOINCREMENT", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
    "random": ("lower(hex(randomblob(16)))", "replace(gen_random_uuid()::text, '-', '')"),
    "document PATH": _FIELD,
    "document PATH as bigint": (_FIELD[0], f"{_FIELD[1]}::bigint"),
    "document PATH as moment": (
        f"strftime('%s', {_FIELD[0]}) * 1000000",
        f"(extract(epoch FROM {_FIELD[1]}::timestamptz) * 1000000)",
    ),
    "document PATH as length": (
        "json_array_length(document, '$.{path}')",
        "json_array_length(document::json #> '{{{keys}}}')",
    ),
    "without PATH": (
        "json_remove(document, {paths})",
        "(SELECT json_object_agg(field.key, field.value)::text"
        " FROM json_each(document::json) AS field WHERE field.key NOT IN ({names}))",
    ),
    "only PATH": (
        "(SELECT json_group_object(field.key, json(field.value))"
        " FROM json_each(document) AS field WHERE field.key IN ({names}))",
        "(SELECT json_object_agg(field.key, field.value)::text"
        " FROM json_each(document::json) AS field WHERE field.key IN ({names}))",
    ),
    "each PATH": (
        "json_each(document, '$.{path}') AS item",
        "json_array_elements(document::json -> '{path}') WITH ORDINALITY AS item(value, place)",
    ),
    "item": ("item.value", "item.value::text"),
    "item PATH": ("json_extract(item.value, '$.{path}')", "(item.value ->> '{path}')"),
    "position": ("item.key + 1", "item.place"),
}
"""The SQL of each mark, for SQLite and PostgreSQL. `document` is a field of a row's JSON document: as text, number,
timestamp (microseconds since 1970) or length of a list. `without` is the document without the named fields; `only` has
just these fields, which must be objects or lists. `each` is for FROM: it makes a row of each item in a list. There,
`item` is the item as text, or a field of the item, and `position` is its number, starting with 1."""
_MARK = re.compile(r"\{\{\s*(?P<word>\w+)(?: (?P<path>[\w. ]+?))?(?: as (?P<form>\w+))?\s*\}\}")
_COMMENT = re.compile(r"--[^\n]*")
_ALONE = re.compile(r"^-- alone: \S", re.MULTILINE)
_OTHERS = """SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"""
_LEDGER = "CREATE TABLE IF NOT EXISTS migrations (number INTEGER PRIMARY KEY)"
_APPLIED = "SELECT number FROM migrations"


class NewerDatabase(Exception):
    """A newer release migrated the database. `fix` is what the operator can do."""

    fix = "Run the newer release of gpuaas-platform, or restore the backup that was made before the upgrade."

    def __init__(self, unknown: set[int]) -> None:
        numbers = ", ".join(str(number) for number in sorted(unknown))
        super().__init__(
            f"a newer release changed the database (migration {numbers}, which this release does not have)"
        )


class NotAlone(Exception):
    """Others use the database, and a migration must be applied alone. `fix` is what the operator can do."""

    fix = "Stop the other servers, start this one, then start the others with the same release."

    def __init__(self, numbers: set[int], connections: int) -> None:
        shown = ", ".join(str(number) for number in sorted(numbers))
        super().__init__(
            f"migration {shown} is not applied while others use the database ({connections} connections), "
            "because a server of an earlier release cannot run on the result"
        )


async def check_not_newer(sqlite_path: Path, database_url: str) -> None:
    """Raise `NewerDatabase` if the database has migrations that this release does not have. Changes nothing."""
    await not_applied(sqlite_path, database_url)


async def not_applied(sqlite_path: Path, database_url: str) -> list[int]:
    """Return the migrations that the next start applies. Changes nothing; raises `NewerDatabase`."""
    applied = await _applied_postgres(database_url) if database_url else _applied_sqlite(sqlite_path)
    _check_known(applied)
    return [number for number in _numbered() if number not in applied]


def migrate_sqlite(path: Path) -> None:
    with contextlib.closing(sqlite.connect(path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(_LEDGER)
        for statement in missing("sqlite", {row["number"] for row in connection.execute(_APPLIED)}):
            connection.execute(statement)
        connection.execute("COMMIT")


async def migrate_postgres(url: str) -> None:
    async with postgres.connected(url) as connection, connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", postgres.WRITER_LOCK)
        await connection.execute(_LEDGER)
        applied = {row["number"] for row in await connection.fetch(_APPLIED)}
        statements = list(missing("postgres", applied))
        # A server that starts now waits for the lock, and is then refused if it is older.
        await _check_alone(connection, applied)
        for statement in statements:
            await connection.execute(statement)


def files(engine: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the statements of each migration, in order."""
    for number, file in _numbered().items():
        yield number, statements_of(_translated(file.read_text(), engine))


def alone(numbers: Iterable[int]) -> set[int]:
    """Return those of these migrations that are applied only while no one else uses the database."""
    known = _numbered()
    return {number for number in numbers if _ALONE.search(known[number].read_text())}


def statements_of(script: str) -> list[str]:
    """Split a script into statements, at semicolons. Ignore semicolons inside strings and comments."""
    statements, part = [], ""
    for piece in re.split(r"(?<=;)", script):
        part += piece
        if sqlite3.complete_statement(part):
            statements.append(part.strip())
            part = ""
    if _COMMENT.sub("", part).strip():
        statements.append(part.strip())
    return [statement for statement in statements if _COMMENT.sub("", statement).strip(" \n;")]


def creation(engine: str, numbers: set[int]) -> Iterator[str]:
    """Yield the statements that make an empty database with exactly these migrations. A restore needs the same schema
    as the backup. Raise `NewerDatabase` if this release does not have all of them."""
    _check_known(numbers)
    yield _LEDGER
    for number, statements in files(engine):
        if number in numbers:
            yield from statements


def missing(engine: str, applied: set[int]) -> Iterator[str]:
    """Yield the statements of each migration that is not applied yet, then the statement that records it as applied."""
    _check_known(applied)
    for number, file in _numbered().items():
        if number not in applied:
            yield from statements_of(_translated(file.read_text(), engine))
            yield f"INSERT INTO migrations (number) VALUES ({number})"  # noqa: S608 - a number of ours


def _numbered() -> dict[int, Traversable]:
    """Return the file of each migration, in order. A start that has nothing to apply reads their names only."""
    folder, numbered = resources.files("gpuaas_platform") / "migrations", dict[int, Traversable]()
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if re.fullmatch(r"\d{4}_\w+\.sql", file.name):
            number = int(file.name[:4])
            if number in numbered:
                raise ValueError(f"two migrations have the number {number}")
            numbered[number] = file
    return numbered


async def _check_alone(connection: postgres.Connection, applied: set[int]) -> None:
    numbers = alone(_numbered().keys() - applied) if applied else set()
    connections = await connection.fetchval(_OTHERS) if numbers else 0
    if connections:
        raise NotAlone(numbers, connections)


def _applied_sqlite(path: Path) -> set[int]:
    if not path.exists():
        return set()
    # If there is no WAL file, no process has the database open, and `immutable=1` reads it without creating files.
    uri, has_wal = f"{path.absolute().as_uri()}?immutable=1", Path(f"{path}-wal").exists()
    alone = contextlib.closing(sqlite3.connect(uri, uri=True))
    with sqlite.read_only(path) if has_wal else alone as connection:
        if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'migrations'").fetchone() is None:
            return set()
        return {row[0] for row in connection.execute(_APPLIED)}


async def _applied_postgres(url: str) -> set[int]:
    async with postgres.connected(url) as connection:
        if await connection.fetchval("SELECT to_regclass('migrations')") is None:
            return set()
        return {row["number"] for row in await connection.fetch(_APPLIED)}


def _check_known(applied: set[int]) -> None:
    unknown = applied - set(_numbered())
    if unknown:
        raise NewerDatabase(unknown)


def _translated(text: str, engine: str) -> str:
    def translate(mark: re.Match[str]) -> str:
        path = mark["path"] or ""
        form = mark["word"] + (" PATH" if path else "") + (f" as {mark['form']}" if mark["form"] else "")
        return _MARKS[form][_ENGINES.index(engine)].format(
            path=path,
            keys=path.replace(".", ","),
            names=", ".join(f"'{name}'" for name in path.split()),
            paths=", ".join(f"'$.{name}'" for name in path.split()),
        )

    return _MARK.sub(translate, text)
