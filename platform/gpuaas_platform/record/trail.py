"""SQL of the audit trail: append a row to its chain, find rows, read the end of a chain. Rows are never changed."""

from dataclasses import dataclass
from typing import Any

import msgspec
from gpuaas_contract.audit import AuditEntry, AuditQuery, AuditRow
from gpuaas_contract.paths import OrgPath, Path, ProjectPath
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.kit import clock, db, paging, tables
from gpuaas_platform.record import chain

LOOK_MAX = 5_000
"""How many rows one page reads at most, with any filters: the cost of a page is bounded."""

_PAGES = "audit"
_ROW = msgspec.json.Decoder(AuditRow)
INDEXED = ("correlation_id", "target", "actor_id", "action")
"""Filters that have an index, the most selective first."""
_FIRST_SINCE = f"""SELECT min(cursor) FROM (SELECT cursor FROM audit WHERE occurred_at >= $1
    ORDER BY occurred_at, cursor LIMIT {LOOK_MAX}) AS looked"""  # noqa: S608 - a number of ours
_LAST_UNTIL = f"""SELECT max(cursor) FROM (SELECT cursor FROM audit WHERE occurred_at <= $1
    ORDER BY occurred_at DESC, cursor DESC LIMIT {LOOK_MAX}) AS looked"""  # noqa: S608


async def append(tx: db.Tx, entry: AuditEntry) -> None:
    """Writers run one after another, so the end of the chain cannot change between the read and the insert."""
    name = chain.name_of(entry.org_id)
    position, previous_hash = await tip(tx, name)
    document = msgspec.json.encode(entry)
    await tx.run(
        """INSERT INTO audit (chain, position, previous_hash, hash, project_id, actor_id, action, target, result,
                              correlation_id, occurred_at, document)
           VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)""",
        name,
        position + 1,
        previous_hash,
        chain.digest(name, position + 1, previous_hash, document),
        entry.project_id,
        entry.actor_id,
        entry.action,
        entry.target,
        entry.result,
        entry.correlation_id,
        clock.micros(entry.occurred_at),
        document.decode(),
    )


async def tip(reader: db.Reader, name: str) -> tuple[int, str]:
    row = await reader.one("SELECT position, hash FROM audit WHERE chain = $1 ORDER BY position DESC LIMIT 1", name)
    return (row[0], row[1]) if row is not None else (0, chain.GENESIS)


async def hash_at(reader: db.Reader, name: str, position: int) -> str | None:
    row = await reader.one("SELECT hash FROM audit WHERE chain = $1 AND position = $2", name, position)
    return str(row[0]) if row is not None else None


async def newest(reader: db.Reader) -> int:
    row = await reader.one("SELECT coalesce(max(cursor), 0) FROM audit")
    return int(row[0]) if row is not None else 0


async def all_chains(reader: db.Reader) -> list[str]:
    """Read one index entry per chain, however long the chains are."""
    chains: list[str] = []
    while True:
        row = await reader.one("SELECT min(chain) FROM audit WHERE chain > $1", chains[-1] if chains else "")
        if row is None or row[0] is None:
            return chains
        chains.append(row[0])


async def chains_between(reader: db.Reader, after: int, until: int) -> list[str]:
    rows = await reader.all("SELECT DISTINCT chain FROM audit WHERE cursor > $1 AND cursor <= $2", after, until)
    return [row[0] for row in rows]


async def list_rows(reader: db.Reader, call: Call[Path, AuditQuery]) -> Page[AuditRow]:
    """The rows of a project, of an organisation's chain, or of the whole platform."""
    if isinstance(call.path, ProjectPath):
        return await search(reader, {"project_id": call.path.project_id}, call.query)
    if isinstance(call.path, OrgPath):
        return await search(reader, {"chain": chain.name_of(call.path.org_id)}, call.query)
    return await search(reader, {}, call.query)


async def search(reader: db.Reader, scope: dict[str, str], query: AuditQuery) -> Page[AuditRow]:
    """Return one page, oldest first. It can be empty although more pages follow: each reads `LOOK_MAX` rows at most.

    `scope` holds what every row must have: {"project_id": …}, {"chain": …}, or nothing for the whole platform."""
    limit, start = query.page_size, max(query.after, _position(query))
    rest = scope | {name: value for name in (*INDEXED, "result") if (value := getattr(query, name))}
    driving = {name: rest.pop(name) for name in [name for name in (*INDEXED, *scope) if name in rest][:1]}
    after, until = await _bounds(reader, query, start)
    look = LOOK_MAX if rest or query.since or query.until else limit
    window = _window(driving, look, [after, until])
    last, looked = await _extent(reader, window)
    rows = await _rows(reader, window, rest, query, limit)
    if len(rows) == limit:
        return Page(items=rows, next_page_token=tables.write_token(_PAGES, str(rows[-1].cursor)))
    following = tables.write_token(_PAGES, str(max(last, start))) if looked == look else None
    return Page(items=rows, next_page_token=following)


def _position(query: AuditQuery) -> int:
    cursor = paging.position(_PAGES, query) or "0"
    if not cursor.isdecimal():
        raise tables.PageTokenInvalid(query.page_token)
    return int(cursor)


@dataclass(frozen=True)
class _Window:
    """The rows that one page reads, through one index. The limit is inside, the other filters are applied outside."""

    sql: str
    values: list[Any]


def _window(driving: dict[str, str], look: int, cursors: list[int]) -> _Window:
    clauses = ["cursor > $1", "cursor <= $2", *(f"{name} = $3" for name in driving)]
    sql = f"SELECT * FROM audit WHERE {' AND '.join(clauses)} ORDER BY cursor LIMIT {look}"  # noqa: S608 - ours
    return _Window(sql, [*cursors, *driving.values()])


async def _extent(reader: db.Reader, window: _Window) -> tuple[int, int]:
    """Cursor of the last row in the window, and how many it has."""
    sql = f"SELECT coalesce(max(cursor), 0), count(*) FROM ({window.sql}) AS looked"  # noqa: S608
    row = await reader.one(sql, *window.values)
    return (row[0], row[1]) if row is not None else (0, 0)


async def _rows(
    reader: db.Reader, window: _Window, rest: dict[str, str], query: AuditQuery, limit: int
) -> list[AuditRow]:
    values = list(window.values)
    clauses = ["1 = 1"]
    filters: list[tuple[str, Any]] = [(f"{name} =", value) for name, value in rest.items()]
    filters += [("occurred_at >=", clock.micros(query.since))] if query.since else []
    filters += [("occurred_at <=", clock.micros(query.until))] if query.until else []
    for comparison, value in filters:
        values.append(value)
        clauses.append(f"{comparison} ${len(values)}")
    sql = f"""SELECT cursor, chain, position, hash, document FROM ({window.sql}) AS looked
              WHERE {" AND ".join(clauses)} ORDER BY cursor LIMIT {limit}"""  # noqa: S608
    return [
        msgspec.structs.replace(_ROW.decode(row[4]), cursor=row[0], chain=row[1], position=row[2], hash=row[3])
        for row in await reader.all(sql, *values)
    ]


async def _bounds(reader: db.Reader, query: AuditQuery, start: int) -> tuple[int, int]:
    """The cursors that enclose all rows of the wanted time. The upper one is read first, so that a row added later is
    on the next page.

    Times follow the clock and cursors the commits, and they disagree where the clock was set back. So many rows around
    the moment are read.
    """
    after, until = start, await newest(reader)
    if query.since is not None and after == 0:
        after = await _one(reader, _FIRST_SINCE, clock.micros(query.since), until + 1) - 1
    if query.until is not None:
        until = await _one(reader, _LAST_UNTIL, clock.micros(query.until), 0)
    return after, until


async def _one(reader: db.Reader, sql: str, micros: int, otherwise: int) -> int:
    row = await reader.one(sql, micros)
    return int(row[0]) if row is not None and row[0] is not None else otherwise
