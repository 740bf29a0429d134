"""Read, write and remove files. A crash never leaves a partly written file."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable
from pathlib import Path


def write_atomic(path: Path, content: bytes, mode: int, check: Callable[[Path], None] | None = None) -> None:
    """Write a draft in the same folder, let `check` inspect it, and rename it to `path`. It is on disk on return."""
    draft = _draft(path)
    try:
        with os.fdopen(os.open(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(draft)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        raise
    sync_directory(path.parent)


def put(path: Path, content: bytes, mode: int, check: Callable[[Path], None] | None = None) -> bool:
    """Write the file unless it has this content and mode already; return whether it was written."""
    current = read(path)
    if current == content and stat.S_IMODE(path.stat().st_mode) == mode:
        return False
    write_atomic(path, content, mode, check)
    return True


def read(path: Path) -> bytes | None:
    """Return the content of the file, or None if it does not exist. Any other error is raised."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def remove(path: Path) -> bool:
    """Remove the file and the draft that a crash may have left; return whether the file existed."""
    with contextlib.suppress(FileNotFoundError):
        _draft(path).unlink()
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def make_directory(path: Path, mode: int) -> None:
    """Make the directory with this mode, independent of the umask, and its missing parents."""
    if path.is_dir():
        return
    make_directory(path.parent, 0o755)
    path.mkdir(exist_ok=True)
    path.chmod(mode)


def sync_directory(path: Path) -> None:
    descriptor = os.open(str(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _draft(path: Path) -> Path:
    # sudo and sshd ignore names with a leading dot. The name is always the same, so crashes leave at most one draft.
    return path.with_name(f".{path.name}.new")
