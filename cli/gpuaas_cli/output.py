"""Write answers to stdout in the form asked for. Tables are for people and awk; json and yaml are the API's."""

import datetime
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuaas_cli.flags import Flags

ELIDED_TAIL = 6


@dataclass(frozen=True)
class Column:
    title: str
    value: Callable[[Any], str]
    wide: bool = False
    """Shown by `-o wide` only."""


def talk(text: str) -> None:
    """For people, never for programs."""
    print(text, file=sys.stderr, flush=True)


def show_list(flags: Flags, rows: Sequence[Any], columns: Sequence[Column], name: Callable[[Any], str]) -> None:
    if flags.output in ("json", "yaml"):
        print(encoded(flags.output, {"items": msgspec.to_builtins(list(rows))}))
    elif flags.output == "name":
        print("".join(f"{name(row)}\n" for row in rows), end="")
    elif rows:
        wide = flags.output == "wide"
        width = 0 if wide else terminal_width()
        print("\n".join(table(rows, columns, wide=wide, width=width)))
    else:
        talk("Nothing found.")


def terminal_width(otherwise: int = 0) -> int:
    """How wide the reader's window is; for a pipe or a file, what the caller thinks best."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise


def show_one(flags: Flags, row: Any, columns: Sequence[Column], name: Callable[[Any], str]) -> None:
    if flags.output in ("json", "yaml"):
        print(encoded(flags.output, msgspec.to_builtins(row)))
    else:
        show_list(flags, [row], columns, name)


def encoded(form: str, value: Any) -> str:
    if form == "json":
        return json.dumps(value, indent=2, ensure_ascii=False)
    import yaml  # noqa: PLC0415 - a tenth of a second that only this form needs

    return str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).rstrip("\n")


def table(rows: Sequence[Any], columns: Sequence[Column], *, wide: bool = False, width: int = 0) -> list[str]:
    """Lines of a table: no cell but the last has a space, so columns can be cut by position. With a width, ids that
    do not fit are shortened visibly, the first column never."""
    lines = [[column.title for column in columns if wide or not column.wide]]
    lines += [cells(row, columns, wide=wide) for row in rows]
    if width and _width(lines) > width:
        lines = [[text if place == 0 else elided(text) for place, text in enumerate(line)] for line in lines]
    return aligned(lines)


def cells(row: Any, columns: Sequence[Column], *, wide: bool = False) -> list[str]:
    shown = [column for column in columns if wide or not column.wide]
    return [cell(column.value(row), spaces=column is shown[-1]) for column in shown]


def aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = _widths(cells)
    return ["  ".join(text.ljust(size) for text, size in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(text: str, *, spaces: bool) -> str:
    flat = " ".join(clean(text).split())
    return (flat if spaces else flat.replace(" ", "_")) or "-"


def clean(text: str) -> str:
    """Text from machines and apps may hold terminal commands; none of them reaches the terminal."""
    return "".join(char if char.isprintable() or char in "\n\t" else "�" for char in text)


def elided(text: str) -> str:
    """`op_01k9…h2x7` for a long id; other words stay whole."""
    prefix, mark, rest = text.partition("_")
    if mark and prefix.isalpha() and len(rest) == 26 and rest.isalnum():
        return f"{prefix}_…{rest[-ELIDED_TAIL:]}"
    return text


def age(moment: datetime.datetime, now: datetime.datetime | None = None) -> str:
    seconds = max(0, int(((now or datetime.datetime.now(datetime.UTC)) - moment).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def clock_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _width(cells: Sequence[Sequence[str]]) -> int:
    return sum(_widths(cells)) + 2 * (len(cells[0]) - 1)


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*cells, strict=True)]
