"""Export usage records as CSV, page by page, so that memory does not depend on the length of the export."""

import csv
import io
from collections.abc import Sequence

import msgspec
from gpuaas_contract.paths import ProjectPath
from gpuaas_contract.usage import UsageQuery, UsageRecord

from gpuaas_platform.call import Call, CutOff
from gpuaas_platform.kit import db
from gpuaas_platform.usage import store

COLUMNS = UsageRecord.__struct_fields__
_PAGE = 500
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
"""A spreadsheet runs a cell that starts with one of these as a formula."""


async def open_export(call: Call[ProjectPath, UsageQuery]) -> "Export":
    return Export(call.site.database.reader, call.path.project_id, call.query)


class Export:
    """A byte source for the edge. An early stop breaks the connection, so that a part does not look like the whole."""

    def __init__(self, reader: db.Reader, project_id: str, query: UsageQuery) -> None:
        self._reader, self._project_id, self._query = reader, project_id, query
        self._after: store.Position | None = None
        self._is_over = self._is_cut = False

    async def next(self) -> bytes:
        if self._is_cut:
            raise CutOff("the caller may no longer see the usage")
        if self._after is None:
            self._after = store.START
            return lines([COLUMNS])
        if self._is_over:
            return b""
        try:
            records = await store.records_after(self._reader, self._project_id, self._query, self._after, _PAGE)
        except db.Unavailable as error:
            raise CutOff("the database does not answer") from error
        self._is_over = len(records) < _PAGE
        self._after = store.position_of(records[-1]) if records else self._after
        return lines([[_text(getattr(record, name)) for name in COLUMNS] for record in records])

    def end(self) -> None:
        self._is_cut = True

    def close(self) -> None:
        self._is_over = True


def lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows([[_harmless(cell) for cell in row] for row in rows])
    return text.getvalue().encode()


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode().strip('"')


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(_FORMULA) else cell
