"""Results of actions within the size that the platform accepts. Pure.

The platform counts bytes of JSON, after characters that it refuses were replaced. A character takes up to six."""

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from gpuaas_contract import characters
from gpuaas_contract.runtime import RESULT_BYTES_MAX

ROWS_BYTES_MAX = RESULT_BYTES_MAX - 16_384
"""What the rows of a result may take. The rest is for its note and other fields.

rows = results.rows_within(({"job": job} for job in jobs), results.ROWS_BYTES_MAX // 2)"""

LINE_BYTES_MAX = 8_000
"""What one line of printed text may take.

row = {"line": results.text_within(text, results.LINE_BYTES_MAX)}"""
_ROW_BYTES = 64
"""What a row with a line may take besides the line: names of fields, and a number."""

__all__ = ["LINE_BYTES_MAX", "ROWS_BYTES_MAX", "first_rows", "last_lines", "rows_within", "text_within"]


def first_rows(rows: Iterable[Mapping[str, Any]], total: int, advice: str = "") -> dict[str, Any]:
    """Return a result with the first rows, as many as fit. If there are more in total, its note counts both and has the
    advice.

    result = results.first_rows(({"job": job} for job in jobs[:500]), len(jobs), "Filter by login for others.")"""
    kept = rows_within(rows)
    note = f"The first {len(kept)} of {total}. {advice}".rstrip()
    return {"rows": kept} | ({"note": note} if len(kept) < total else {})


def last_lines(lines: Sequence[str]) -> list[str]:
    """Return the last lines of what a program printed, as many as fit. Of a very long line, its beginning is kept.

    rows = [{"line": line} for line in results.last_lines(text.splitlines())]"""
    kept, left = list[str](), ROWS_BYTES_MAX
    for line in reversed(lines):
        short = text_within(line, LINE_BYTES_MAX)
        left -= _size(short) + _ROW_BYTES
        if left < 0:
            break
        kept.append(short)
    return kept[::-1]


def rows_within(rows: Iterable[Mapping[str, Any]], bytes_max: int = ROWS_BYTES_MAX) -> list[Mapping[str, Any]]:
    """Return the first rows, as many as fit. Characters of texts that the platform refuses are replaced.

    rows = results.rows_within({"job": job} for job in jobs)"""
    kept, left = list[Mapping[str, Any]](), bytes_max
    for row in rows:
        clean = {name: _clean(value) if isinstance(value, str) else value for name, value in row.items()}
        left -= len(characters.replaced(msgspec.json.encode(clean))) + 1
        if left < 0:
            break
        kept.append(clean)
    return kept


def text_within(text: str, bytes_max: int) -> str:
    """Return the beginning of a text that takes at most so many bytes. No character is cut into halves, and those that
    the platform refuses are replaced.

    row = {"line": results.text_within(text, 8_000)}"""
    clean = _clean(text[:bytes_max])
    lengths = range(len(clean) + 1)
    return clean[: bisect.bisect_right(lengths, bytes_max, key=lambda length: _size(clean[:length])) - 1]


def _clean(text: str) -> str:
    # What programs print can have half a character pair, which UTF-8 cannot express.
    return characters.clean(text).encode(errors="replace").decode()


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) - len('""')
