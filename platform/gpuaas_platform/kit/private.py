"""The data folder: no other user of the machine may read keys, the database or content."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import structlog

log = structlog.get_logger()

_OTHERS = 0o077


def open_folder(folder: Path, database: Path | None) -> None:
    """Create the data folder and the database file (None: it is elsewhere), or make existing ones private.

    A folder that others may read and that has files of something else is refused: to close it could harm its users."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _is_open(folder):
        if any(folder.iterdir()) and not any((folder / name).exists() for name in ("keys", "gpuaas.sqlite")):
            raise PermissionError(f"other users may read {folder}, and it contains files that are not the platform's")
        _close(folder, 0o700)
    if database is not None:
        os.close(os.open(database, os.O_RDWR | os.O_CREAT, 0o600))
        _close_all([database, Path(f"{database}-wal"), Path(f"{database}-shm")])


def open_lock(path: Path) -> BinaryIO:
    """Open a file to lock it, and create it if it is missing. If root creates it, the owner of the folder gets it:
    otherwise the user of the server could not lock it any more."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_CREAT, 0o600), "rb")
    if os.geteuid() == 0:
        owner = path.parent.stat()
        os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
    return file


def _close_all(files: Sequence[Path]) -> None:
    for file in files:
        if file.exists() and _is_open(file):
            _close(file, 0o600)


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & _OTHERS)


def _close(path: Path, mode: int) -> None:
    before = stat.S_IMODE(path.stat().st_mode)
    path.chmod(mode)
    log.warning("data.made_private", path=str(path), mode_before=f"{before:04o}", mode=f"{mode:04o}")
