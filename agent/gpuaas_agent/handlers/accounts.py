"""The Unix account of an allocation: user, home, sudo right, and what it leaves behind. Called by allocation."""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from gpuaas_agent import commands, files
from gpuaas_agent.handlers import spec

SUDOERS = Path("/etc/sudoers.d")
FILE_SYSTEMS = (Path("/"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""The node's own disk, and what users can write to when it is mounted apart. Other disks belong to somebody else."""


def uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def home_of(user: str) -> Path:
    return Path("/home") / user


def key_files(user: str) -> list[str]:
    """Files of public keys that may log in as the user."""
    found = home_of(user) / ".ssh" / "authorized_keys"
    return [str(found)] if found.is_file() else []


def ensure(user: str) -> int:
    """Make the user unless it is there, ready for certificate login; answers its uid."""
    if uid_of(user) is None:
        # '*' is no password that can ever match. useradd's own '!' means "locked", which sshd refuses without PAM.
        argv = ["useradd", "--create-home", "--home-dir", str(home_of(user)), "--shell", "/bin/bash"]
        commands.run([*argv, "--password", "*", "--comment", "GPUaaS allocation", user])
    uid = uid_of(user)
    if not uid:
        raise spec.HandlerError("user_not_made", f"useradd ended well, but user {user} is not there or is root")
    # A release that was cut off may have closed the account.
    commands.run(["usermod", "--expiredate", "", user])
    return uid


def sudoers_text(user: str) -> str:
    return f"{user} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def allow_sudo(user: str) -> None:
    if not SUDOERS.is_dir():
        raise spec.HandlerError("sudo_missing", f"{SUDOERS} is not there; install sudo on the node")
    files.put(_sudoers_file(user), sudoers_text(user).encode(), 0o440, check=_check_sudoers)


def forbid_sudo(user: str) -> list[str]:
    return [str(_sudoers_file(user))] if files.remove(_sudoers_file(user)) else []


def close(user: str) -> None:
    """From now on PAM admits no session for the user, whatever it left in cron or at."""
    commands.run(["usermod", "--expiredate", "1", user])


def remove_leftovers(user: str, uid: int) -> list[str]:
    """What the account owns outside its home; the next user may get the same uid and must not find it."""
    removed = [str(path) for path in _personal_files(user) if files.remove(path)]
    for top in FILE_SYSTEMS:
        removed += remove_owned(top, uid, apart_from=home_of(user))
    return removed


def left_behind(user: str, uid: int) -> list[str]:
    """Look again: what the account still owns outside its home."""
    found = {str(entry.path) for top in FILE_SYSTEMS for entry in _owned(top, uid, apart_from=home_of(user))}
    return sorted(found)


def remove(user: str) -> tuple[str, list[str]]:
    """Remove user, home, mail spool and group, also after a removal that was cut off; the home and what else went."""
    home, mail = home_of(user), Path("/var/mail") / user
    present = [place for place in (home, mail) if os.path.lexists(place)]
    if uid_of(user) is not None:
        commands.run(["userdel", "--force", "--remove", user], timeout_s=600)
    for place in present:
        remove_tree(place)
    with contextlib.suppress(KeyError):
        grp.getgrnam(user)
        commands.run(["groupdel", user])
    return str(home) if home in present else "", [str(place) for place in present if place != home]


def remove_owned(top: Path, uid: int, apart_from: Path | None = None) -> list[str]:
    """Remove what this uid owns below a directory, following no link and staying on its file system."""
    removed = []
    for entry in _owned(top, uid, apart_from):
        # For example a folder in which another user has put a file: looking again will find it.
        with contextlib.suppress(OSError):
            entry.remove()
            removed.append(str(entry.path))
    return removed


def remove_tree(path: Path) -> None:
    """Whatever stands there, following no link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def _sudoers_file(user: str) -> Path:
    return SUDOERS / f"gpuaas-{user}"


def _check_sudoers(path: Path) -> None:
    commands.run(["visudo", "-cf", str(path)])


def _personal_files(user: str) -> list[Path]:
    return [Path("/var/spool/cron/crontabs") / user, Path("/var/lib/systemd/linger") / user]


@dataclasses.dataclass(frozen=True)
class _Entry:
    """Something in an open folder: nobody can swap the folder for a link between look and removal."""

    path: Path
    folder: int
    is_directory: bool

    def remove(self) -> None:
        (os.rmdir if self.is_directory else os.unlink)(self.path.name, dir_fd=self.folder)


def _owned(top: Path, uid: int, apart_from: Path | None = None) -> Iterator[_Entry]:
    """What this uid owns below a directory, the deepest first, on the directory's own file system."""
    try:
        folder = os.open(str(top), _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        yield from _owned_in(top, folder, os.fstat(folder).st_dev, uid, apart_from)
    finally:
        os.close(folder)


def _owned_in(path: Path, folder: int, device: int, uid: int, apart_from: Path | None) -> Iterator[_Entry]:
    for name in os.listdir(folder):
        inner = path / name
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_directory = stat.S_ISDIR(found.st_mode)
            if inner == apart_from or (is_directory and found.st_dev != device):
                continue
            below = os.open(name, _FOLDER, dir_fd=folder) if is_directory else -1
        except (FileNotFoundError, NotADirectoryError):
            continue  # it went, or became something else, under our eyes: looking again will find what is there
        if is_directory:
            try:
                yield from _owned_in(inner, below, device, uid, apart_from)
            finally:
                os.close(below)
        if found.st_uid == uid:
            yield _Entry(inner, folder, is_directory)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
