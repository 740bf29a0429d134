"""Read and write whole tables, the same way on both engines: every value of a row is a number or a text.

Reading uses one snapshot, beside a running server. Writing uses one transaction: all tables or none.
"""

import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec

from gpuaas_platform.backup import manifest
from gpuaas_platform.kit import db, migrate, postgres, sqlite
from gpuaas_platform.kit.settings import Settings

Row = tuple[object, ...]
_FETCHED_ROWS = 100
_CHUNK_BYTES = 1 << 20
_ENCODER = msgspec.json.Encoder()
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
_POSTGRES_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
_POSTGRES_COLUMNS = """SELECT column_name, data_type, is_identity FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = $1 ORDER BY ordinal_position"""
_POSTGRES_KEY = """SELECT attribute.attname FROM pg_index
    JOIN unnest(pg_index.indkey) WITH ORDINALITY AS part(number, place) ON true
    JOIN pg_attribute AS attribute ON attribute.attrelid = pg_index.indrelid AND attribute.attnum = part.number
    WHERE pg_index.indrelid = $1::text::regclass AND pg_index.indisprimary ORDER BY part.place"""


class SqliteTables:
    engine = "sqlite"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.tx: db.Tx = sqlite.SqliteTx(connection, [])

    async def columns(self) -> dict[str, list[str]]:
        names = [row[0] for row in self._connection.execute(_SQLITE_TABLES)]
        return {name: [row[0] for row in self._info(name)] for name in names}

    async def rows(self, table: str, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
        """Yield the rows in the order of the key, in batches."""
        info = self._info(table)
        key = [row[0] for row in sorted(info, key=lambda row: int(row[1])) if row[1]] or columns
        cursor = self._connection.execute(f"SELECT {_listed(columns)} FROM {table} ORDER BY {_listed(key)}")  # noqa: S608
        while batch := cursor.fetchmany(_FETCHED_ROWS):
            yield [tuple(row) for row in batch]

    async def sequences(self) -> dict[str, int]:
        return {row[0]: int(row[1]) for row in self._connection.execute("SELECT name, seq FROM sqlite_sequence")}

    async def set_sequence(self, table: str, value: int) -> None:
        self._connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
        self._connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table, value))

    async def run(self, statements: Iterable[str]) -> None:
        for statement in statements:
            self._connection.execute(statement)

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        sql = f"INSERT INTO {table} ({_listed(columns)}) VALUES ({', '.join('?' * len(columns))})"  # noqa: S608
        self._connection.executemany(sql, rows)

    def _info(self, table: str) -> list[sqlite3.Row]:
        return self._connection.execute("SELECT name, pk FROM pragma_table_info(?)", (table,)).fetchall()


class PostgresTables:
    engine = "postgres"

    def __init__(self, connection: postgres.Connection) -> None:
        self._connection = connection
        self.tx: db.Tx = postgres.PostgresTx(connection, [])

    async def columns(self) -> dict[str, list[str]]:
        names = [row[0] for row in await self._connection.fetch(_POSTGRES_TABLES)]
        return {name: [row[0] for row in await self._connection.fetch(_POSTGRES_COLUMNS, name)] for name in names}

    async def rows(self, table: str, columns: Sequence[str]) -> AsyncIterator[list[Row]]:
        """Yield the rows in the order of the key, in batches. Texts are compared by bytes, as SQLite does."""
        types = {row[0]: row[1] for row in await self._connection.fetch(_POSTGRES_COLUMNS, table)}
        key = [row[0] for row in await self._connection.fetch(_POSTGRES_KEY, table)] or columns
        order = ", ".join(f'{name} COLLATE "C"' if types[name] == "text" else name for name in key)
        sql = f"SELECT {_listed(columns)} FROM {table} ORDER BY {order}"  # noqa: S608
        batch: list[Row] = []
        async for row in self._connection.cursor(sql, prefetch=_FETCHED_ROWS):
            batch.append(tuple(row))
            if len(batch) == _FETCHED_ROWS:
                yield batch
                batch = []
        yield batch

    async def sequences(self) -> dict[str, int]:
        return {
            table: int(await self._connection.fetchval(f"SELECT last_value FROM {name}"))  # noqa: S608
            for table, name in (await self._counters()).items()
        }

    async def set_sequence(self, table: str, value: int) -> None:
        await self._connection.execute("SELECT setval($1::text::regclass, $2)", (await self._counters())[table], value)

    async def run(self, statements: Iterable[str]) -> None:
        for statement in statements:
            await self._connection.execute(statement)

    async def insert(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        await self._connection.copy_records_to_table(table, records=rows, columns=list(columns))

    async def _counters(self) -> dict[str, str]:
        """Return the name of each table's sequence."""
        sql = """SELECT table_name, pg_get_serial_sequence(table_name, column_name) FROM information_schema.columns
                 WHERE table_schema = current_schema() AND is_identity = 'YES'"""
        return {row[0]: row[1] for row in await self._connection.fetch(sql)}


Tables = SqliteTables | PostgresTables


@contextlib.asynccontextmanager
async def snapshot(settings: Settings) -> AsyncIterator[Tables]:
    """Open the store as it is now. Later commits of a running server are not visible in it, and the server does not
    wait for it."""
    if settings.database_url:
        async with (
            postgres.connected(settings.database_url) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await connection.execute("SELECT count(*) FROM migrations")
            yield PostgresTables(connection)
        return
    uri = f"{settings.sqlite_path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as embedded:
        embedded.execute("BEGIN")
        embedded.execute("SELECT count(*) FROM migrations").fetchone()  # the snapshot begins with the first read
        yield SqliteTables(embedded)


@contextlib.asynccontextmanager
async def transaction(settings: Settings) -> AsyncIterator[Tables]:
    """Open the store to fill it. Everything is committed at the end, or nothing after an error."""
    if settings.database_url:
        async with postgres.connected(settings.database_url) as connection, connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", postgres.WRITER_LOCK)
            yield PostgresTables(connection)
        return
    with contextlib.closing(sqlite.connect(settings.sqlite_path)) as embedded:
        embedded.execute("BEGIN IMMEDIATE")
        yield SqliteTables(embedded)
        embedded.execute("COMMIT")


async def applied(tables: Tables) -> set[int]:
    return {int(row[0]) for row in await tables.tx.all("SELECT number FROM migrations")}


async def own_columns(tables: Tables) -> dict[str, list[str]]:
    """Return the columns of the platform's own tables. Programs that copy a database add some of theirs."""
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        own = SqliteTables(empty)
        await own.run(migrate.creation(own.engine, await applied(tables)))
        names = await own.columns()
    return {name: columns for name, columns in (await tables.columns()).items() if name in names}


async def create(tables: Tables, migrations: Iterable[int]) -> None:
    """Create empty tables with exactly these migrations: also without the rows that a migration inserts."""
    await tables.run(migrate.creation(tables.engine, set(migrations)))
    await tables.run(f"DELETE FROM {name}" for name in await tables.columns())  # noqa: S608


async def chunks(tables: Tables, table: str, columns: Sequence[str]) -> AsyncIterator[tuple[bytes, int]]:
    """Yield the encoded rows of a table in chunks of about a megabyte, each with the number of its rows."""
    content, count = bytearray(), 0
    async for batch in tables.rows(table, columns):
        content += _ENCODER.encode_lines(batch)
        count += len(batch)
        if len(content) >= _CHUNK_BYTES:
            yield bytes(content), count
            content, count = bytearray(), 0
    if count:
        yield bytes(content), count


async def digest(tables: Tables, table: str, columns: Sequence[str]) -> manifest.Digest:
    running = manifest.Running()
    async for content, count in chunks(tables, table, columns):
        running.add(content, count)
    return running.digest()


def decoded(content: bytes) -> list[Row]:
    return [tuple(row) for row in msgspec.json.Decoder(list[object]).decode_lines(content)]


def check_names(columns: dict[str, list[str]]) -> None:
    """Refuse names that are not names of ours, because they become part of statements."""
    for table, names in columns.items():
        for name in (table, *names):
            if not _NAME.fullmatch(name):
                raise ValueError(f"{name!r} is not the name of a table or column")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names)
