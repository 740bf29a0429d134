"""The table of ARCHITECTURE.md that shows which files one command crosses, made from a recording."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

from walk_run import Recording

ACCEPTED = "platform/gpuaas_platform/operations/accept.py"
_HEAD = "| # | folder | files, in the order of their first call | what happens there |\n|---|---|---|---|\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)+")
_ROW = re.compile(r"^\| \d+ \| `([^`]+)` \| [^|]+ \| ([^|]*) \|$", re.MULTILINE)
_FILES = re.compile(r"^\| \d+ \| `([^`]+)` \| ([^|]+) \|", re.MULTILINE)
_MODULES = frozenset({"contract", "apps/slurm"})
"""Parts that are one row each; of the others, each folder of the package is one."""


def page_with(page: str, recording: Recording) -> str:
    """The page with the table of this recording; what people wrote about a folder stays."""
    meanings = dict(_ROW.findall(_table_of(page)))
    return page.replace(_table_of(page), _HEAD + "".join(_rows(recording, meanings)), 1)


def crossed(page: str) -> dict[str, set[str]]:
    """Files by folder. Their order is left out: the controller's requests run side by side, so it can differ by one."""
    return {folder: set(re.findall(r"`([^`]+)`", files)) for folder, files in _FILES.findall(_table_of(page))}


def rows_without_meaning(page: str) -> list[str]:
    return [folder for folder, meaning in _ROW.findall(_table_of(page)) if not meaning.strip()]


def rows(page: str) -> int:
    return len(_ROW.findall(_table_of(page)))


def _table_of(page: str) -> str:
    match = _TABLE.search(page)
    assert match is not None, "ARCHITECTURE.md has no table of the walk"
    return match[0]


def _rows(recording: Recording, meanings: Mapping[str, str]) -> Iterator[str]:
    folders: dict[str, list[str]] = {}
    for file in dict.fromkeys(_path(recording)):
        if file not in recording.every_command:
            folder, name = _split(file)
            folders.setdefault(folder, []).append(f"`{name}`")
    for number, (folder, names) in enumerate(folders.items(), 1):
        yield f"| {number} | `{folder}` | {', '.join(names)} | {meanings.get(folder, '')} |\n"


def _path(recording: Recording) -> Iterable[str]:
    """Files in the order of the page: the command until the operation is accepted, the server for the command, the
    controller, the server for the controller, and the command as it follows. The last three happen side by side."""
    accepted_at = next(at for at, _, file in recording.server if file == ACCEPTED)
    yield from (file for at, _, file in recording.command if at < accepted_at)
    yield from (file for _, actor, file in recording.server if actor == "user")
    yield from (file for _, _, file in recording.controller)
    yield from (file for _, actor, file in recording.server if actor == "service_account")
    yield from (file for _, _, file in recording.command)


def _split(file: str) -> tuple[str, str]:
    """The folder of a row, and the file's path in it."""
    parts = PurePath(file).parts
    depth = next(index for index, part in enumerate(parts) if part.startswith("gpuaas_")) + 1
    if str(PurePath(*parts[: depth - 1])) not in _MODULES and len(parts) > depth + 1:
        depth += 1
    return str(PurePath(*parts[:depth])), str(PurePath(*parts[depth:]))
