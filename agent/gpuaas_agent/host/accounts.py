"""The Unix account of an allocation: user, home, sudo rule, and the files it owns outside its home."""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import pwd
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from gpuaas_agent import commands, errors, files

SUDOERS = Path("/etc/sudoers.d")
LOCAL_UID_MAX = 19_999
"""Highest number of a user that the agent makes for itself. People have numbers from the platform, above it."""
FILE_SYSTEMS = (Path("/"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))
"""Where files of users are removed: the root file system, and folders that users can write to, which may be separate
mounts. Other disks are not searched."""


def uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def home_of(user: str) -> Path:
    return Path("/home") / user


def key_files(user: str) -> list[str]:
    """Return the files of public keys in the user's home."""
    path = home_of(user) / ".ssh" / "authorized_keys"
    return [str(path)] if path.is_file() else []


def ensure(user: str) -> int:
    """Make the user, ready for certificate login, unless it exists; return its uid."""
    if uid_of(user) is None:
        # No password matches '*'. The default of useradd, '!', means "locked", which sshd without PAM refuses.
        argv = ["useradd", "--create-home", "--home-dir", str(home_of(user)), "--shell", "/bin/bash"]
        # useradd would take the number after the highest one, which belongs to the next person of the organisation.
        argv += ["--key", f"UID_MAX={LOCAL_UID_MAX}", "--key", f"GID_MAX={LOCAL_UID_MAX}"]
        commands.run([*argv, "--password", "*", "--comment", "GPUaaS allocation", user])
    uid = uid_of(user)
    if not uid:
        raise errors.TaskFailed("user_not_made", f"useradd succeeded, but user {user} does not exist or is root")
    # If a release was interrupted, the account has expired; undo that.
    commands.run(["usermod", "--expiredate", "", user])
    return uid


def sudoers_text(user: str) -> str:
    return f"{user} ALL=(ALL:ALL) NOPASSWD: ALL\n"


def allow_sudo(user: str) -> None:
    if not SUDOERS.is_dir():
        raise errors.TaskFailed("sudo_missing", f"{SUDOERS} does not exist; install sudo on the node")
    files.put(_sudoers_file(user), sudoers_text(user).encode(), 0o440, check=_check_sudoers)


def forbid_sudo(user: str) -> list[str]:
    return [str(_sudoers_file(user))] if files.remove(_sudoers_file(user)) else []


def expire(user: str) -> None:
    """Make PAM refuse every new session of the user, including those of cron and at."""
    commands.run(["usermod", "--expiredate", "1", user])


def remove_leftovers(users: Mapping[str, int], homes: Collection[Path]) -> list[str]:
    """Remove the accounts' files outside their homes, because the next user may get the same uid; return their paths.
    `users` has the uid of each account; one scan finds the files of all."""
    removed = [str(path) for user in users for path in _personal_files(user) if files.remove(path)]
    for top in FILE_SYSTEMS:
        removed += remove_owned(top, set(users.values()), except_for=homes)
    return removed


def left_behind(users: Mapping[str, int], homes: Collection[Path]) -> list[str]:
    """Return the files that the accounts still own outside their homes."""
    uids = set(users.values())
    return sorted({str(entry.path) for top in FILE_SYSTEMS for entry in _owned(top, uids, except_for=homes)})


def remove(user: str) -> tuple[str, list[str]]:
    """Remove user, group, home and mail file, also after an interrupted removal. Return the home and other paths."""
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


def remove_owned(top: Path, uids: Collection[int] | None, except_for: Collection[Path] = ()) -> list[str]:
    """Remove what these uids own below a directory, without following links or leaving its file system. None: all."""
    removed = []
    for entry in _owned(top, uids, except_for):
        # It fails for a folder with a file of another user, for example. `left_behind` then reports the folder.
        with contextlib.suppress(OSError):
            entry.remove()
            removed.append(str(entry.path))
    return removed


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, without following links."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def remove_tree_here(path: Path) -> None:
    """Remove a folder, without following links and without what is mounted inside."""
    remove_owned(path, None)
    with contextlib.suppress(OSError):  # not empty: something is mounted inside
        path.rmdir()


def _sudoers_file(user: str) -> Path:
    return SUDOERS / f"gpuaas-{user}"


def _check_sudoers(path: Path) -> None:
    commands.run(["visudo", "-cf", str(path)])


def _personal_files(user: str) -> list[Path]:
    return [Path("/var/spool/cron/crontabs") / user, Path("/var/lib/systemd/linger") / user]


@dataclasses.dataclass(frozen=True)
class _Entry:
    """A file, named relative to its open folder, so that a link cannot replace the folder between check and removal."""

    path: Path
    folder: int
    is_directory: bool

    def remove(self) -> None:
        (os.rmdir if self.is_directory else os.unlink)(self.path.name, dir_fd=self.folder)


def _owned(top: Path, uids: Collection[int] | None, except_for: Collection[Path] = ()) -> Iterator[_Entry]:
    """Yield what these uids own, or everything, below a directory, deepest first, on its own file system."""
    try:
        folder = os.open(str(top), _FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        yield from _owned_in(top, folder, os.fstat(folder).st_dev, uids, except_for)
    finally:
        os.close(folder)


def _owned_in(
    path: Path, folder: int, device: int, uids: Collection[int] | None, except_for: Collection[Path]
) -> Iterator[_Entry]:
    for name in os.listdir(folder):
        inner = path / name
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_directory = stat.S_ISDIR(status.st_mode)
            if inner in except_for or (is_directory and status.st_dev != device):
                continue
            below = os.open(name, _FOLDER, dir_fd=folder) if is_directory else -1
        except (FileNotFoundError, NotADirectoryError):
            continue  # it was removed or replaced just now; `left_behind` scans again
        if is_directory:
            try:
                yield from _owned_in(inner, below, device, uids, except_for)
            finally:
                os.close(below)
        if uids is None or status.st_uid in uids:
            yield _Entry(inner, folder, is_directory)


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
