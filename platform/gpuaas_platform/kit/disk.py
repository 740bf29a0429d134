"""Free space of the file system that holds the data folder. `artifacts` leaves a reserve of it to the store."""

import os
from pathlib import Path
from typing import NamedTuple

_DEFAULT_RESERVE_BYTES, _DEFAULT_RESERVE_SHARE = 1024**3, 20
_FULL_BELOW_BYTES = 1024**2
"""With less free space than this, the file system counts as full: a commit of the store needs some of it."""


class Space(NamedTuple):
    """The space of a file system, as an unprivileged process may use it."""

    total_bytes: int
    free_bytes: int
    has_free_inodes: bool
    is_read_only: bool

    def problem(self) -> str:
        """Return why nothing can be written; empty if it can."""
        if self.is_read_only:
            return "read_only"
        return "" if self.free_bytes >= _FULL_BELOW_BYTES and self.has_free_inodes else "disk_full"


def space(folder: Path) -> Space:
    status = os.statvfs(folder)
    has_free_inodes = status.f_files == 0 or status.f_favail > 0  # some file systems have no fixed number of inodes
    is_read_only = bool(status.f_flag & os.ST_RDONLY)
    return Space(status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize, has_free_inodes, is_read_only)


def reserve_bytes(total_bytes: int, configured: int | None) -> int:
    """Return the space that content of artifacts must leave free. By default 1 GiB, or 5 % of a small file system."""
    if configured is not None:
        return configured
    return min(_DEFAULT_RESERVE_BYTES, total_bytes // _DEFAULT_RESERVE_SHARE)
