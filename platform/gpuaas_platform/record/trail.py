"""SQL of the audit trail: append a row to its chain, find rows, read the end of a chain. Rows are never changed."""

import datetime

import msgspec
from gpuaas_contract.audit import AuditEntry, AuditQuery, AuditRow
from gpuaas_contract.paths import OrgPath, Path, ProjectPath
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.kit import clock, db, paging, tables
from gpuaas_platform.record import chain

LOOK_MAX = 5_000
"""Largest number of rows that one page reads, with any filters, to limit the cost of a page."""

_PAGES = "audit"
_ROW = msgspec.json.Decoder(AuditRow)
_ORDERS = {"oldest": ("cursor", "max(cursor)"), "newest": ("cursor DESC", "min(cursor)")}
"""SQL of each order, and of the last row that a page looked at."""
INDEXED = ("correlation_id", "target", "actor_id", "action")
"""Filters that have an index, the most selective first."""
_FIRST_SINCE = f"""SELECT min(cursor) FROM (SELECT cursor FROM audit WHERE occurred_at >= $1
    ORDER BY occurred_at, cursor LIMIT {LOOK_MAX}) AS looked"""  # noqa: S608 - a number of ours
_LAST_UNTIL = f"""SELECT max(cursor) FROM (SELECT cursor FROM audit WHERE occurred_at <= $1
    ORDER BY occurred_at DESC, cursor DESC LIMIT {LOOK_MAX}) AS looked"""  # noqa: S608
_APPEND = f"""INSERT INTO audit (chain, position, previous_hash, hash, occurred_at, document, {", ".join(chain.COPIED)})
    VALUES ({db.marks(6 + len(chain.COPIED))})"""  # noqa: S608


async def append(tx: db.Tx, entry: AuditEntry) -> None:
    """Append a row. Write transactions run one at a time, so the chain cannot grow between the read and the insert."""
    name = chain.name_of(entry.org_id)
    last, previous_hash = await tip(tx, name)
    position, document = last + 1, msgspec.json.encode(entry)
    hash_ = chain.digest(name, position, previous_hash, document)
    copies = [getattr(entry, column) for column in chain.COPIED]
    at = clock.micros(entry.occurred_at)
    await tx.run(_APPEND, name, position, previous_hash, hash_, at, document.decode(), *copies)


async def tip(reader: db.Reader, name: str) -> tuple[int, str]:
    row = await reader.one("SELECT position, hash FROM audit WHERE chain = $1 ORDER BY position DESC LIMIT 1", name)
    return (row[0], row[1]) if row is not None else (0, chain.GENESIS)


async def first_after(reader: db.Reader, name: str, position: int) -> datetime.datetime | None:
    """Return the time of the first row of a chain after a position; None if there is none."""
    row = await reader.one("SELECT occurred_at FROM audit WHERE chain = $1 AND position = $2", name, position + 1)
    return clock.moment(row[0]) if row is not None else None


async def hash_at(reader: db.Reader, name: str, position: int) -> str | None:
    row = await reader.one("SELECT hash FROM audit WHERE chain = $1 AND position = $2", name, position)
    return str(row[0]) if row is not None else None


async def newest(reader: db.Reader) -> int:
    return await _number(reader, 0, "SELECT max(cursor) FROM audit")


async def newest_at(reader: db.Reader) -> int:
    """Return the latest time of all rows, in microseconds; 0 without rows."""
    return await _number(reader, 0, "SELECT max(occurred_at) FROM audit")


async def all_chains(reader: db.Reader) -> list[str]:
    """Return the names of all chains. Reads one index entry per chain, so the length of chains does not matter."""
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
    """Return the rows of a project, of an organisation's chain, or of the whole platform."""
    if isinstance(call.path, ProjectPath):
        return await search(reader, {"project_id": call.path.project_id}, call.query)
    if isinstance(call.path, OrgPath):
        return await search(reader, {"chain": chain.name_of(call.path.org_id)}, call.query)
    return await search(reader, {}, call.query)


async def search(reader: db.Reader, scope: dict[str, str], query: AuditQuery) -> Page[AuditRow]:
    """Return one page. It can be empty although more pages follow: each reads `LOOK_MAX` rows at most.

    `scope` has the column that every row must match: {"project_id": …}, {"chain": …}, or {} for the whole platform."""
    limit, order, edge = query.page_size, *_ORDERS[query.order]
    rest = scope | {name: value for name in (*INDEXED, "result") if (value := getattr(query, name))}
    driving = {name: rest.pop(name) for name in [name for name in (*INDEXED, *scope) if name in rest][:1]}
    after, until = await _bounds(reader, query)
    look = LOOK_MAX if rest or query.since or query.until else limit
    clauses = ["cursor > $1", "cursor <= $2", *(f"{name} = $3" for name in driving)]
    # The rows that this page reads, through one index. It has the limit; the other filters are applied to its result.
    window = f"SELECT * FROM audit WHERE {' AND '.join(clauses)} ORDER BY {order} LIMIT {look}"  # noqa: S608 - ours
    values = [after, until, *driving.values()]
    extent = f"SELECT coalesce({edge}, 0), count(*) FROM ({window}) AS looked"  # noqa: S608
    row = await reader.one(extent, *values)
    last, looked = (row[0], row[1]) if row is not None else (0, 0)
    rows = await _rows(reader, window, values, rest, query)
    if len(rows) == limit:
        return Page(items=rows, next_page_token=paging.next_page(_PAGES, query, str(rows[-1].cursor)))
    following = paging.next_page(_PAGES, query, str(last)) if looked == look else None
    return Page(items=rows, next_page_token=following)


def _position(query: AuditQuery) -> int:
    cursor = paging.position(_PAGES, query) or "0"
    if not cursor.isdecimal():
        raise tables.PageTokenInvalid(query.page_token)
    return int(cursor)


async def _rows(
    reader: db.Reader, window: str, values: list[int | str], rest: dict[str, str], query: AuditQuery
) -> list[AuditRow]:
    filters: dict[str, int | str] = {f"{name} =": value for name, value in rest.items()}
    if query.since:
        filters["occurred_at >="] = clock.micros(query.since)
    if query.until:
        filters["occurred_at <="] = clock.micros(query.until)
    clauses = ["1 = 1", *(f"{comparison} ${mark}" for mark, comparison in enumerate(filters, len(values) + 1))]
    sql = f"""SELECT cursor, chain, position, hash, document FROM ({window}) AS looked
              WHERE {" AND ".join(clauses)} ORDER BY {_ORDERS[query.order][0]} LIMIT {query.page_size}"""  # noqa: S608
    return [
        msgspec.structs.replace(_ROW.decode(row[4]), cursor=row[0], chain=row[1], position=row[2], hash=row[3])
        for row in await reader.all(sql, *values, *filters.values())
    ]


async def _bounds(reader: db.Reader, query: AuditQuery) -> tuple[int, int]:
    """Return the lower and upper cursor of the rows that this page and those after it can have. The upper one is read
    first, so that a row added later is on the next page.

    Rows are ordered by commit, not by time: the orders differ if the clock was set back. So `LOOK_MAX` rows around
    each limit of the range are read.
    """
    after, until = query.after, await newest(reader)
    place = _position(query)
    if place and query.order == "newest":
        until = min(until, place - 1)
    elif place:
        after = max(after, place)
    if query.since is not None and after == 0:
        after = await _number(reader, until + 1, _FIRST_SINCE, clock.micros(query.since)) - 1
    if query.until is not None:
        until = min(until, await _number(reader, 0, _LAST_UNTIL, clock.micros(query.until)))
    return after, until


async def _number(reader: db.Reader, otherwise: int, sql: str, *values: int) -> int:
    row = await reader.one(sql, *values)
    return int(row[0]) if row is not None and row[0] is not None else otherwise
