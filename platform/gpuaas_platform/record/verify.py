"""Read audit rows and heads, also beside a running server; check them with `chain`. `commands.audit` prints the result.

Heads are read before rows: a chain only grows, so every row that a head counts must exist afterwards.
"""

import contextlib
import datetime
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gpuaas_platform.kit import clock, db, postgres, sqlite
from gpuaas_platform.record import chain, heads

BATCH = 5_000
_CACHE_KIB = 65_536
HEAD_DUE_S = 300
"""If the platform still worked this long after a chain's first row, the chain has a head. The signer runs five times in
this period."""

_COPIED = ", ".join(chain.COPIED)
Progress = Callable[[str, int], None]
"""Called after every batch with the chain's name and the number of checked rows."""


@dataclass(frozen=True)
class Verdict:
    name: str
    count: int
    last_position: int
    signed_position: int
    """Position of the last valid head that matches the rows."""
    findings: tuple[chain.Finding, ...]
    """Ordered by position."""


@dataclass(frozen=True)
class Evidence:
    """The heads and the key that rows are compared with."""

    folder: Path
    """Folder of the platform's own heads files."""
    key: Ed25519PublicKey
    elsewhere: Sequence[chain.Head] = ()
    """Copies of heads that were stored outside the platform."""


async def verify(
    source: "Source", evidence: Evidence, only: str = "", progress: Progress = lambda *_: None
) -> list[Verdict]:
    """Verify the chain `only`, or every chain that has rows or heads."""
    signed = {*heads.names(evidence.folder), *(head.chain for head in evidence.elsewhere)}
    known = [only] if only else sorted({*await source.chains(), *signed})
    return [await _verify_one(source, evidence, name, progress) for name in known]


async def _verify_one(source: "Source", evidence: Evidence, name: str, progress: Progress) -> Verdict:
    sound, findings = chain.check_file(name, heads.lines(evidence.folder, name), evidence.key)
    kept = [head for head in evidence.elsewhere if head.chain == name]
    findings += [finding for head in kept if (finding := chain.check_head(head, evidence.key)) is not None]
    # A head stored elsewhere is trusted because of its place, so its hash counts even if the local key was replaced.
    walk = chain.Walk(name, [*sound, *kept])
    async with contextlib.aclosing(source.batches(name)) as batches:
        async for rows in batches:
            walk.feed(rows)
            progress(name, walk.count)
            if walk.finding is not None:
                break
    walk.end()
    findings += [walk.finding] if walk.finding else []
    if not sound and not findings and await _is_due(source, evidence, name):
        message = "no signed head covers these rows yet; a running server signs a new head every minute"
        findings.append(chain.Finding("head missing", 1, message))
    ordered = tuple(sorted(findings, key=lambda finding: finding.position))
    return Verdict(name, walk.count, walk.position, walk.vouched, ordered)


async def _is_due(source: "Source", evidence: Evidence, name: str) -> bool:
    """Return whether the chain must have a head: the platform wrote a row or a head long after the chain's first row.

    The present time does not count: a server that was killed soon after the first row has signed nothing yet."""
    first_at, newest_at = await source.first_at(name), await source.newest_at()
    signed_at = max((head.time for head in heads.last_heads(evidence.folder)), default="")
    times = [newest_at, clock.micros(datetime.datetime.fromisoformat(signed_at)) if signed_at else 0]
    return first_at is not None and max(times) - first_at > HEAD_DUE_S * 1_000_000


@contextlib.asynccontextmanager
async def open_source(data_dir: Path, database_url: str) -> "AsyncIterator[Source]":
    """Open the database read-only; raise OSError, sqlite3.Error or asyncpg.PostgresError if there is none."""
    if database_url:
        connection = await asyncpg.connect(database_url, server_settings={"default_transaction_read_only": "on"})
        try:
            yield PostgresSource(connection)
        finally:
            await connection.close()
        return
    path = data_dir / "gpuaas.sqlite"
    if not path.exists():
        raise FileNotFoundError(f"there is no database at {path}")
    with sqlite.read_only(path) as embedded:
        embedded.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        yield SqliteSource(embedded)


class SqliteSource:
    """Reads the document as bytes, because the hash is of the stored bytes, which may be invalid text."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.reader: db.Reader = sqlite.SqliteReader(connection)

    async def chains(self) -> list[str]:
        rows = self._connection.execute("SELECT DISTINCT chain FROM audit").fetchall()
        return [str(row[0]) for row in rows]

    async def first_at(self, name: str) -> int | None:
        """Return the time of the first row, in microseconds; None without rows."""
        sql = "SELECT occurred_at FROM audit WHERE chain = ? ORDER BY position LIMIT 1"
        row = self._connection.execute(sql, (name,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], int) else None

    async def newest_at(self) -> int:
        """Return the latest time of all rows, in microseconds; 0 without rows."""
        newest_at = self._connection.execute("SELECT max(occurred_at) FROM audit").fetchone()[0]
        return newest_at if isinstance(newest_at, int) else 0

    async def batches(self, name: str) -> AsyncGenerator[list[chain.Columns], None]:
        """Yield the rows of a chain in the order of their positions, with the columns of `chain.Row`."""
        sql = f"""SELECT cursor, position, previous_hash, hash, coalesce(CAST(document AS BLOB), x''), {_COPIED}
                  FROM audit WHERE chain = ? ORDER BY position, cursor LIMIT -1 OFFSET ?"""  # noqa: S608 - ours
        done = 0
        cursor = self._connection.execute(sql, (name, done))
        while True:
            try:
                rows = cursor.fetchmany(BATCH)
            except sqlite3.OperationalError:
                if self._connection.text_factory is _forgiving:
                    raise
                # A column is not valid text. Read it with replacement characters, so that the walk can report the row.
                self._connection.text_factory = _forgiving
                cursor = self._connection.execute(sql, (name, done))
                continue
            if not rows:
                return
            done += len(rows)
            yield rows


class PostgresSource:
    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self.reader: db.Reader = postgres.PostgresReader(connection)

    async def chains(self) -> list[str]:
        return [row[0] for row in await self._connection.fetch("SELECT DISTINCT chain FROM audit")]

    async def first_at(self, name: str) -> int | None:
        sql = "SELECT occurred_at FROM audit WHERE chain = $1 ORDER BY position LIMIT 1"
        first_at: int | None = await self._connection.fetchval(sql, name)
        return first_at

    async def newest_at(self) -> int:
        newest_at: int | None = await self._connection.fetchval("SELECT max(occurred_at) FROM audit")
        return newest_at or 0

    async def batches(self, name: str) -> AsyncGenerator[list[chain.Columns], None]:
        sql = f"""SELECT cursor, position, previous_hash, hash, convert_to(document, 'UTF8'), {_COPIED}
                  FROM audit WHERE chain = $1 ORDER BY position, cursor"""  # noqa: S608
        async with self._connection.transaction(readonly=True):
            cursor = await self._connection.cursor(sql, name)
            while rows := await cursor.fetch(BATCH):
                yield [tuple(row) for row in rows]


Source = SqliteSource | PostgresSource


def _forgiving(raw: bytes) -> str:
    return raw.decode("utf-8", "replace")
