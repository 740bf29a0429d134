"""Results of actions within the size that the platform accepts. Pure.

The platform counts bytes of JSON, after characters that it refuses were replaced. A character takes up to six."""

import bisect
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from gpuaas_contract import characters
from gpuaas_contract.runtime import RESULT_BYTES_MAX

ROWS_BYTES_MAX = RESULT_BYTES_MAX - 16_384
"""What the rows of a result may take. The rest is for its note and other fields."""

__all__ = ["ROWS_BYTES_MAX", "rows_within", "text_within"]


def rows_within(rows: Iterable[Mapping[str, Any]], bytes_max: int = ROWS_BYTES_MAX) -> list[Mapping[str, Any]]:
    """Return the first rows, as many as fit. For the last ones, reverse the rows and what is returned.

    rows = results.rows_within({"line": line} for line in text.splitlines())"""
    kept, left = list[Mapping[str, Any]](), bytes_max
    for row in rows:
        left -= len(characters.replaced(msgspec.json.encode(row))) + 1
        if left < 0:
            break
        kept.append(row)
    return kept


def text_within(text: str, bytes_max: int) -> str:
    """Return the beginning of a text that takes at most so many bytes. No character is cut into halves, and those that
    the platform refuses are replaced.

    row = {"line": results.text_within(line, 8_000)}"""
    # What programs print can have half a character pair, which UTF-8 cannot express.
    clean = characters.clean(text[:bytes_max]).encode(errors="replace").decode()
    lengths = range(len(clean) + 1)
    return clean[: bisect.bisect_right(lengths, bytes_max, key=lambda length: _size(clean[:length])) - 1]


def _size(text: str) -> int:
    return len(msgspec.json.encode(text)) - len('""')
