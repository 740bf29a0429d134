"""Decide whether the result of an action is the table that the app's manifest declares."""

import datetime
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from gpuaas_contract import errors
from gpuaas_contract.catalog import ActionSpec, ColumnKind, Manifest, ResultColumn

NOTE_LENGTH_MAX = 2000
_TYPES: Mapping[ColumnKind, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "timestamp": (str,),
}


class Table(msgspec.Struct, forbid_unknown_fields=True):
    """The result of an action with columns."""

    rows: list[dict[str, Any]]
    """Column -> value; null where there is none."""
    note: Annotated[str, msgspec.Meta(max_length=NOTE_LENGTH_MAX)] = ""
    """Text for people, below the table."""


def check(manifest: Manifest, action: str, result: Mapping[str, Any]) -> None:
    """Refuse a result that does not fit the columns of the action. An action without columns returns anything."""
    spec = next((spec for spec in manifest.actions if spec.name == action), None)
    if spec is None or spec.result is None:
        return
    flaw = _flaw(spec, result)
    if flaw:
        raise errors.ValidationFailed(
            f"The result of {action} does not fit the columns in the manifest: {flaw}.",
            details={"field": "result", "action": action},
            fix="The app's team corrects the handler of the action or its columns.",
        )


def _flaw(spec: ActionSpec, result: Mapping[str, Any]) -> str:
    columns = {column.name: column for column in spec.result.columns} if spec.result else {}
    try:
        table = msgspec.convert(result, Table)
    except msgspec.ValidationError as error:
        return str(error)
    flaws = (_flaw_of_row(columns, row) for row in table.rows)
    return next((f"row {number}: {flaw}" for number, flaw in enumerate(flaws, start=1) if flaw), "")


def _flaw_of_row(columns: Mapping[str, ResultColumn], row: Mapping[str, Any]) -> str:
    for name in _missing(columns, row):
        return f"{name} is missing"
    for name in _missing(row, columns):
        return f"there is no column {name}"
    wrong = [column for name, column in columns.items() if not _fits(column.kind, row[name])]
    return f"{wrong[0].name} is not of kind {wrong[0].kind}" if wrong else ""


def _missing(wanted: Mapping[str, object], present: Mapping[str, object]) -> Sequence[str]:
    return [name for name in wanted if name not in present]


def _fits(kind: ColumnKind, value: object) -> bool:
    if value is None:
        return True
    # A boolean is an int in Python, and none in JSON.
    if not isinstance(value, _TYPES[kind]) or (isinstance(value, bool) and kind != "boolean"):
        return False
    return kind != "timestamp" or _is_time(str(value))


def _is_time(text: str) -> bool:
    try:
        return datetime.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
