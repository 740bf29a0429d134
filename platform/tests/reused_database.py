"""A migrated PostgreSQL database that one test after another uses: to empty it takes a tenth of what a copy takes."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import postgres_server
from gpuaas_platform.kit import ids, postgres

_USES_MAX = 25
"""Rows that were deleted still take room, because nothing cleans up in the background. Then a new copy is cheaper."""
_END_OTHERS = """
    SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_SCHEMA = """
    SELECT format('%s of %s', max(xmin::text::bigint), count(*)) FROM (
        SELECT xmin FROM pg_class UNION ALL SELECT xmin FROM pg_attribute UNION ALL SELECT xmin FROM pg_constraint
        UNION ALL SELECT xmin FROM pg_index UNION ALL SELECT xmin FROM pg_trigger UNION ALL SELECT xmin FROM pg_proc
    ) AS described"""
"""The newest transaction that changed the schema, and how many parts the schema has."""
_WITH_ROWS = """
    SELECT relname FROM pg_class
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND pg_relation_size(oid) > 0"""
_SEQUENCES = "SELECT setval(seqrelid, seqstart, false) FROM pg_sequence"


class ReusedDatabase:
    """Close it at the end of the run; the server that has the database is stopped then."""

    def __init__(self, folder: Path, template: str) -> None:
        self._folder, self._template = folder, template
        self._loop = asyncio.new_event_loop()
        self._name, self._uses, self._schema = "", 0, ""
        self._filled: dict[str, list[tuple[Any, ...]]] = {}
        """The tables in which migrations inserted rows, and these rows."""

    def take(self) -> str:
        """Return the URL of a database that is like a new copy of the template."""
        if not self._name:
            self._name, self._uses = ids.new("db"), 0
            postgres_server.create_database(self._folder, self._name, self._template)
            self._run(self._describe())
        self._uses += 1
        return self._url

    def give_back(self) -> None:
        """Empty the database, or drop it if a test changed its schema or if it was used often enough."""
        if self._uses >= _USES_MAX or not self._run(self._empty()):
            postgres_server.drop_database(self._folder, self._name)
            self._name = ""

    def close(self) -> None:
        self._loop.close()

    @property
    def _url(self) -> str:
        return f"postgresql://postgres@/{self._name}?host={self._folder}"

    def _run(self, work: Coroutine[Any, Any, bool]) -> bool:
        return self._loop.run_until_complete(work)

    async def _describe(self) -> bool:
        async with postgres.connected(self._url) as connection:
            self._schema = await connection.fetchval(_SCHEMA)
            self._filled = {table: await _rows(connection, table) for table in await _tables_with_rows(connection)}
        return True

    async def _empty(self) -> bool:
        async with postgres.connected(self._url) as connection:
            await connection.execute(_END_OTHERS)
            if await connection.fetchval(_SCHEMA) != self._schema:
                return False
            changed = {table for table, rows in self._filled.items() if await _rows(connection, table) != rows}
            emptied = changed | set(await _tables_with_rows(connection)) - set(self._filled)
            statements = [f"DELETE FROM {table}" for table in emptied]
            await connection.execute(";".join(["SET session_replication_role = replica", *statements, _SEQUENCES]))
            for table in changed:
                await connection.copy_records_to_table(table, records=self._filled[table])
        return True


async def _rows(connection: postgres.Connection, table: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in await connection.fetch(f"SELECT * FROM {table}")]


async def _tables_with_rows(connection: postgres.Connection) -> list[str]:
    return [row["relname"] for row in await connection.fetch(_WITH_ROWS)]
