"""The Unix account of an allocation: user, home, sudo rule, and the files it owns outside its home."""

from __future__ import annotations

import contextlib
import dataclasses
import grp
import os
import pwd
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
PATH_SHOWN_MAX = 400
"""Below a folder with a longer path, paths are shown cut."""
CUT = "/..."


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
    return sorted({entry.shown for top in FILE_SYSTEMS for entry in _owned(top, uids, except_for=homes)})


def remove(user: str) -> tuple[str, list[str]]:
    """Remove user, group, home and mail file, also after an interrupted removal. Return the home and other paths."""
    home, mail = home_of(user), Path("/var/mail") / user
    present = [place for place in (home, mail) if os.path.lexists(place)]
    if uid_of(user) is not None:
        # Without `--remove`, with which userdel fails for folders that are nested deeper than it has files open.
        commands.run(["userdel", "--force", user], timeout_s=600)
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
            removed.append(entry.shown)
    return removed


def remove_tree(path: Path) -> None:
    """Remove a file or a folder, without following links and without what is mounted inside."""
    if path.is_dir() and not path.is_symlink():
        remove_owned(path, None)
        path.rmdir()
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

    name: str
    shown: str
    """Its path, for people."""
    folder: int
    is_directory: bool

    def remove(self) -> None:
        (os.rmdir if self.is_directory else os.unlink)(self.name, dir_fd=self.folder)


@dataclasses.dataclass(frozen=True)
class _Level:
    """A folder that the scan is in, or came through."""

    name: str
    shown: str
    owner: int
    identity: tuple[int, int]
    names: list[str]
    """What is in it and was not looked at yet."""


def _owned(top: Path, uids: Collection[int] | None, except_for: Collection[Path] = ()) -> Iterator[_Entry]:
    """Yield what these uids own, or everything, below a directory, deepest first, on its own file system.

    Only one folder is open at a time, and nothing recurses: users can nest folders deeper than Python recurses, and
    deeper than a process may have files open."""
    spared = {str(path) for path in except_for}
    folder = _open(str(top))
    if folder is None:
        return
    levels = [_level("", str(top), folder)]
    device = levels[0].identity[0]
    try:
        while levels[0].names or len(levels) > 1:
            level = levels[-1]
            if not level.names:
                above = _parent(folder, levels[-2])
                os.close(folder)
                folder = above
                levels.pop()
                if uids is None or level.owner in uids:
                    yield _Entry(level.name, level.shown, folder, is_directory=True)
                continue
            name = level.names.pop()
            shown = _joined(level.shown, name)
            status = _status(name, folder)
            if shown in spared or status is None:
                continue
            if not stat.S_ISDIR(status.st_mode):
                if uids is None or status.st_uid in uids:
                    yield _Entry(name, shown, folder, is_directory=False)
            elif status.st_dev == device and (below := _open(name, folder)) is not None:
                os.close(folder)
                folder = below
                levels.append(_level(name, shown, folder))
    finally:
        os.close(folder)


def _open(name: str, folder: int | None = None) -> int | None:
    """Open a folder. None: it was removed or replaced just now; `left_behind` scans again."""
    try:
        return os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _status(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _level(name: str, shown: str, folder: int) -> _Level:
    status = os.fstat(folder)
    return _Level(name, shown, status.st_uid, (status.st_dev, status.st_ino), os.listdir(folder))


def _parent(folder: int, level: _Level) -> int:
    """Open the folder above. It must be the one that the scan came through: folders can be moved during the scan."""
    above = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
    status = os.fstat(above)
    if (status.st_dev, status.st_ino) != level.identity:
        os.close(above)
        raise errors.TaskFailed("folder_moved", f"a folder was moved out of {level.shown} while its files were removed")
    return above


def _joined(shown: str, name: str) -> str:
    """Return the path of a file, cut below very deep folders: every path of a million folders would fill the memory."""
    if len(shown) <= PATH_SHOWN_MAX:
        return f"{shown.rstrip('/')}/{name}"
    return shown if shown.endswith(CUT) else shown + CUT
