"""The log of an operation: lines that its controller sends with heartbeats and with the end. It has bounds.

A report without lines costs nothing here; one with lines costs the same however long the log is."""

from collections.abc import Sequence

import msgspec
from gpuaas_contract.operations import LogLine, OperationHead
from gpuaas_contract.paths import OperationPath
from gpuaas_contract.protocol import log as log_rules
from gpuaas_contract.protocol.log import LogState
from gpuaas_contract.runtime import ReportedLogLine
from gpuaas_contract.wire import Page

from gpuaas_platform.call import Call
from gpuaas_platform.kit import clock, db, paging, tables
from gpuaas_platform.kit.retention import Retained
from gpuaas_platform.operations import read

_LINE = msgspec.json.Decoder(LogLine)
_ROWS_PER_STATEMENT = 50
_SAVE_STATE = """INSERT INTO operation_logs (operation_id, epoch, number, lines, size_bytes, is_cut, changed_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (operation_id) DO UPDATE
    SET epoch = excluded.epoch, number = excluded.number, lines = excluded.lines, size_bytes = excluded.size_bytes,
        is_cut = excluded.is_cut, changed_at = excluded.changed_at"""


async def add(tx: db.Tx, call: Call, operation: OperationHead, reported: Sequence[ReportedLogLine]) -> None:
    """Store the lines of a report. The caller has checked that the report is from the holder of the lease."""
    if not reported:
        return
    present = await _state(tx, operation.operation_id)
    state, lines = log_rules.stored(present, operation.operation_id, operation.epoch, reported)
    if state == present:
        return
    now = clock.micros(call.now)
    values = (state.epoch, state.number, state.lines, state.size_bytes, int(state.is_cut), now)
    await tx.run(_SAVE_STATE, operation.operation_id, *values)
    for some in db.chunks(lines, _ROWS_PER_STATEMENT):
        await _insert(tx, some, now)


async def page(reader: db.Reader, call: Call[OperationPath]) -> Page[LogLine]:
    operation = await read.head(reader, call, call.path.operation_id)

    async def lines_after(after: str, limit: int) -> list[LogLine]:
        if after and not (after.isdecimal() and len(after) < 10):
            raise tables.PageTokenInvalid(after)
        sql = """SELECT document FROM operation_log_lines WHERE operation_id = $1 AND position > $2
                 ORDER BY position LIMIT $3"""
        return [_LINE.decode(row[0]) for row in await reader.all(sql, operation.operation_id, int(after or 0), limit)]

    return await paging.page("operation_log_lines", call.query, lines_after, lambda line: str(line.position))


async def newest(reader: db.Reader, operation_ids: Sequence[str], limit: int) -> list[LogLine]:
    """Return the newest lines of these operations, at most `limit`, in order of time."""
    if not operation_ids:
        return []
    place = len(operation_ids) + 1
    sql = f"""SELECT document FROM operation_log_lines WHERE operation_id IN ({db.marks(len(operation_ids))})
              ORDER BY received_at DESC, operation_id DESC, position DESC LIMIT ${place}"""  # noqa: S608 - marks only
    lines = [_LINE.decode(row[0]) for row in await reader.all(sql, *operation_ids, limit)]
    return sorted(lines, key=lambda line: (line.logged_at, line.operation_id, line.position))


async def _state(reader: db.Reader, operation_id: str) -> LogState:
    sql = "SELECT epoch, number, lines, size_bytes, is_cut FROM operation_logs WHERE operation_id = $1"
    row = await reader.one(sql, operation_id)
    return LogState(row[0], row[1], row[2], row[3], bool(row[4])) if row is not None else LogState()


async def _insert(tx: db.Tx, lines: Sequence[LogLine], now: int) -> None:
    rows = ", ".join(f"({db.marks(4, 4 * at + 1)})" for at in range(len(lines)))
    values = [
        value for line in lines for value in (line.operation_id, line.position, now, msgspec.json.encode(line).decode())
    ]
    sql = f"INSERT INTO operation_log_lines (operation_id, position, received_at, document) VALUES {rows}"  # noqa: S608
    await tx.run(sql, *values)


async def _has_old_line(reader: db.Reader, before: int) -> bool:
    sql = "SELECT 1 FROM operation_log_lines WHERE received_at < $1 LIMIT 1"
    return await reader.one(sql, before) is not None


async def _forget_lines(tx: db.Tx, before: int, limit: int) -> None:
    sql = """DELETE FROM operation_log_lines WHERE (operation_id, position) IN (
             SELECT operation_id, position FROM operation_log_lines WHERE received_at < $1 LIMIT $2)"""
    await tx.run(sql, before, limit)


async def _has_old_state(reader: db.Reader, before: int) -> bool:
    return await reader.one("SELECT 1 FROM operation_logs WHERE changed_at < $1 LIMIT 1", before) is not None


async def _forget_states(tx: db.Tx, before: int, limit: int) -> None:
    sql = """DELETE FROM operation_logs WHERE operation_id IN (
             SELECT operation_id FROM operation_logs WHERE changed_at < $1 LIMIT $2)"""
    await tx.run(sql, before, limit)


# The lines go first: a log that continues after its state was deleted begins with position 1 again.
RETAINED = (
    Retained("operations.log_lines", lambda settings: settings.operation_log_kept_s, _has_old_line, _forget_lines),
    Retained("operations.logs", lambda settings: settings.operation_log_kept_s, _has_old_state, _forget_states),
)
