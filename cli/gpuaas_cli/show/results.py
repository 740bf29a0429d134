"""What apps report, for people: the result of an action, as a table if it has rows, and the detail of a member."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuaas_contract.catalog import ResultColumn

from gpuaas_cli import output
from gpuaas_cli.output import Lines, flat


def lines(result: Mapping[str, Any], columns: Sequence[ResultColumn] = ()) -> Lines:
    """Return the lines for people. Without columns, a table has the keys of its rows as headings."""
    rows = result.get("rows")
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        return values(result)
    headings = {column.name: _heading(column) for column in columns} or {name: name for row in rows for name in row}
    shape = output.Table("", tuple(output.Column(heading.upper(), _value(name)) for name, heading in headings.items()))
    note = [flat(str(result["note"]))] if result.get("note") else []
    return [*(output.listing(rows, shape) or ["No rows."]), *note]


def values(reported: Mapping[str, Any]) -> Lines:
    """Return one line per value."""
    result = []
    for key, value in reported.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        result.append(f"{flat(key)}: {text}".replace("\n", "\n      "))
    return result


def _heading(column: ResultColumn) -> str:
    unit = f"[{column.unit}]" if column.unit else ""
    return f"{column.title}{unit}".replace(" ", "_")


def _value(name: str) -> Any:
    def value(row: Mapping[str, Any]) -> str:
        present = row.get(name)
        if isinstance(present, bool):
            return "yes" if present else "no"
        return "" if present is None else str(present)

    return value
