"""Print answers in the format of -o. Tables are for users and awk; json and yaml are the records of the API."""

import datetime
import functools
import json
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuaas_cli import terminal
from gpuaas_cli.flags import Flags

_LONG_ID = re.compile(r"^([a-z]+)_[0-9a-z]{20}([0-9a-z]{6})$", re.IGNORECASE)
AGES = frozenset({"AGE", "SEEN", "USED", "LAST_SEEN"})
"""Titles of columns that show a time as an age."""

talk = terminal.talk
plain = msgspec.to_builtins
"""Converts records to dicts, lists and numbers."""

Lines = list[str]
Value = str | Callable[[Any], str]
"""An attribute of the row, a path such as `error.message` whose parts may be None, or a function that returns text."""


@dataclass(frozen=True)
class Column:
    title: str
    value: Value
    wide: bool = False
    """Shown only with `-o wide`."""


@dataclass(frozen=True)
class Table:
    """The columns for resources of one type."""

    name: Value
    """Column that `-o name` prints: the name of the resource, which other commands accept as an argument."""
    columns: tuple[Column, ...]

    def shown(self, wide: bool) -> list[Column]:
        return [column for column in self.columns if wide or not column.wide]


def table(columns: str, name: Value = "", **words: Callable[[Any], str]) -> Table:
    """Declare columns by title: `NODE=node_name` shows that attribute, `NODE` the attribute `node`; `NODE*` only with
    `-o wide`. `words` has functions for columns that are not attributes. `name` is the first column by default."""
    result = []
    for part in columns.split():
        title, _, attribute = part.rstrip("*").partition("=")
        result.append(Column(title, words.get(title) or attribute or title.lower(), part.endswith("*")))
    return Table(name or result[0].value, tuple(result))


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def show(flags: Flags, answer: Any, shape: Table) -> None:
    """Print one row or a list of rows, in the format of -o."""
    rows = answer if isinstance(answer, list | tuple) else [answer]
    if flags.structured_whole:
        show_data(flags, {"items": list(rows)} if rows is answer else answer)
    elif flags.output == "name":
        terminal.out("".join(f"{flat(_text(row, shape.name))}\n" for row in rows), end="")
    elif rows:
        wide = flags.output == "wide"
        terminal.out("\n".join(listing(rows, shape, wide=wide, width=0 if wide else terminal_width())))
    else:
        talk("Nothing found.")


def show_page(flags: Flags, row: Any, page: Sequence[str]) -> None:
    """Print the lines of a page; with -o json or yaml, the record."""
    if flags.structured_whole:
        show_data(flags, row)
    else:
        terminal.out("\n".join(page).lstrip("\n"))


def show_data(flags: Flags, value: Any) -> None:
    terminal.out(encoded(flags.output, plain(value)))


def terminal_width(otherwise: int = 0) -> int:
    """Return the width of the terminal; `otherwise` for a pipe or a file."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else otherwise


def encoded(form: str, value: Any, *, indent: int | None = 2) -> str:
    """Return a record as JSON or YAML. Characters that do not print are escapes, so that values stay the same."""
    if form == "json":
        return terminal.escaped(json.dumps(value, indent=indent, ensure_ascii=False))
    import yaml  # noqa: PLC0415 - a tenth of a second that only this form needs

    text = str(yaml.safe_dump(value, sort_keys=False, allow_unicode=True)).rstrip("\n")
    return text if terminal.is_clean(text) else str(yaml.safe_dump(value, sort_keys=False)).rstrip("\n")


def listing(rows: Sequence[Any], shape: Table, *, wide: bool = False, width: int = 0) -> Lines:
    """Return the lines of a table; empty without rows. Only the last cell may contain spaces, so that awk can split
    lines. If a line is longer than `width`, long ids are shortened, except in the first column."""
    if not rows:
        return []
    result = [[column.title for column in shape.shown(wide)], *(cells(row, shape, wide=wide) for row in rows)]
    if width and max(map(len, aligned(result))) > width:
        result = [[first, *(_LONG_ID.sub(r"\1_…\2", text) for text in rest)] for first, *rest in result]
    return aligned(result)


def facts(row: Any, shape: Table) -> Lines:
    """Return a line with title and value for each column that is not empty; `_` in a title becomes a space."""
    texts = [(column.title.replace("_", " "), _text(row, column.value, column.title)) for column in shape.columns]
    return aligned([[title, flat(text)] for title, text in texts if text])


def cells(row: Any, shape: Table, *, wide: bool = False, spaces: bool = False, ages: bool = True) -> list[str]:
    """Return the cells of a row. With `spaces` all of them keep their spaces, and not only the last one. Without `ages`
    every time is exact."""
    *first, last = [_text(row, column.value, column.title if ages else "") for column in shape.shown(wide)]
    return [*(cell(text, spaces=spaces) for text in first), cell(last, spaces=True)]


def aligned(cells: Sequence[Sequence[str]]) -> Lines:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(size) for text, size in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(text: str, *, spaces: bool) -> str:
    line = flat(text)
    return (line if spaces else line.replace(" ", "_")) or "-"


def flat(text: str) -> str:
    """Return the text as one line, so that a line break in it cannot look like a line of the CLI."""
    return " ".join(text.split())


def quoted_command(*words: str) -> str:
    """Return a command of the CLI to copy. Words that others chose are quoted, so that a shell runs nothing else."""
    return shlex.join(["gpuaas", *map(flat, words)])


def payload_text(payload: Mapping[str, Any]) -> str:
    texts = {key: ",".join(map(str, value)) if isinstance(value, list) else value for key, value in payload.items()}
    return " ".join(f"{key}={text}" for key, text in texts.items() if text not in ("", None, {}))


def age(moment: datetime.datetime) -> str:
    seconds = max(0, int((now() - moment).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def duration(start: datetime.datetime, end: datetime.datetime | None = None) -> str:
    """Format the time between `start` and `end`; without `end`, until now."""
    seconds = ((end or now()) - start).total_seconds()
    if seconds < 60:
        return f"{max(0.0, seconds):.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02}m"


def clock_time(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _text(row: Any, value: Value, title: str = "") -> str:
    if not isinstance(value, str):
        return value(row)
    result = functools.reduce(lambda part, name: None if part is None else getattr(part, name), value.split("."), row)
    if result is None:
        return ""
    if isinstance(result, bool):
        return "yes" if result else "no"
    if isinstance(result, datetime.datetime):
        return age(result) if title in AGES else clock_time(result)
    return ",".join(map(str, result)) if isinstance(result, list | tuple) else str(result)
