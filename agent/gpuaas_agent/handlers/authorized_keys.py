"""`allocation.install_authorized_keys`: exactly these keys of people log in as the allocation's user, and no others."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuaas_agent.handlers import accounts, owners, spec

HEADER = "# Kept by the GPUaaS node agent; what you add here is lost with the next change.\n"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_NAME, _DRAFT = "authorized_keys", ".authorized_keys.new"


def install(params: dict[str, Any]) -> dict[str, Any]:
    user, keys = params["user"], params["public_keys"]
    if not owners.is_of(user, params["allocation_id"]):
        raise spec.HandlerError("allocation_absent", f"allocation {params['allocation_id']} is not on this node")
    entry = pwd.getpwnam(user)
    try:
        put(accounts.home_of(user), entry.pw_uid, entry.pw_gid, keys)
    except OSError as error:
        message = f"{accounts.home_of(user)}/.ssh cannot be written: {error.strerror}; it must be a folder of its own"
        raise spec.HandlerError("ssh_folder_unusable", message) from error
    return {"installed": len(keys)}


def put(home: Path, uid: int, gid: int, keys: list[str]) -> None:
    """The home is the user's to rearrange, so no link is followed on the way. Without keys there is no file."""
    with _opened(str(home)) as home_folder:
        with contextlib.suppress(FileExistsError):
            os.mkdir(".ssh", 0o700, dir_fd=home_folder)
            os.chown(".ssh", uid, gid, dir_fd=home_folder, follow_symlinks=False)
        with _opened(".ssh", home_folder) as folder:
            for name in (_DRAFT,) if keys else (_DRAFT, _NAME):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
            if keys:
                _write(folder, (HEADER + "".join(f"{key}\n" for key in keys)).encode())
            os.fsync(folder)


def _write(folder: int, content: bytes) -> None:
    with os.fdopen(os.open(_DRAFT, _NEW, 0o600, dir_fd=folder), "wb") as file:
        # root's, so that only somebody with root's rights puts another key in.
        os.fchmod(file.fileno(), 0o644)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(_DRAFT, _NAME, src_dir_fd=folder, dst_dir_fd=folder)


@contextlib.contextmanager
def _opened(path: str, folder: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
