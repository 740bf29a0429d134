"""Records that an older release left, loaded into a store with the schema of that release."""

import base64
import gzip
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import old_store
from gpuaas_platform.kit.settings import Settings

Row = list[Any]


class Table(msgspec.Struct):
    columns: list[str]
    rows: list[Row]


class Records(msgspec.Struct):
    """See `data/make_operations_in_documents.py`."""

    now: str
    project_id: str
    instance_id: str
    key_id: str
    client_secret: str
    operations: dict[str, dict[str, Any]]
    """Each operation as the older release showed it."""
    files: dict[str, str]
    tables: dict[str, Table]


def read(path: Path) -> Records:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()), type=Records)


async def load(records: Records, settings: Settings, *, before_migration: int) -> None:
    """Put the files into the data folder and the rows into a store whose schema ends before this migration."""
    for name, content in records.files.items():
        path = settings.data_dir / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(content))
        path.chmod(0o600)
    path = settings.data_dir / "gpuaas.sqlite"
    await old_store.schema_before(before_migration, path, settings.database_url)
    if settings.database_url:
        await _load_postgres(records, settings.database_url)
    else:
        _load_sqlite(records, path)


def _load_sqlite(records: Records, path: Path) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for name, columns, rows in _inserts(records):
            marks = ", ".join("?" * len(columns))
            connection.executemany(f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})", rows)
    connection.close()


async def _load_postgres(records: Records, url: str) -> None:
    connection = await asyncpg.connect(url)
    for name, columns, rows in _inserts(records):
        await connection.copy_records_to_table(name, columns=columns, records=rows)
        if "cursor" in columns:
            await connection.execute(
                f"SELECT setval(pg_get_serial_sequence('{name}', 'cursor'), (SELECT max(cursor) FROM {name}))"
            )
    await connection.close()


def _inserts(records: Records) -> Iterator[tuple[str, list[str], list[Row]]]:
    for name, table in records.tables.items():
        yield name, table.columns, table.rows
