"""The Unix account of an allocation: user, home, sudo right, and what it leaves behind. Called by allocation."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import stat
from pathlib import Path

from gpuaas_agent import commands, files, log
from gpuaas_agent.handlers import spec

SUDOERS = Path("/etc/sudoers.d")
SHARED_DIRECTORIES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))


def uid_of(user: str) -> int | None:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        return None


def home_of(user: str) -> Path:
    return Path("/home") / user


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
    for directory in SHARED_DIRECTORIES:
        removed += remove_owned(directory, uid)
    return removed


def remove(user: str) -> list[str]:
    """Remove user, home, mail spool and group; also finishes a removal that was cut off."""
    places = [home_of(user), Path("/var/mail") / user]
    present = [place for place in places if os.path.lexists(place)]
    if uid_of(user) is not None:
        commands.run(["userdel", "--force", "--remove", user], timeout_s=600)
    for place in present:
        _remove_tree(place)
    with contextlib.suppress(KeyError):
        grp.getgrnam(user)
        commands.run(["groupdel", user])
    return [str(place) for place in present]


def remove_owned(top: Path, uid: int) -> list[str]:
    """Remove what this uid owns below a directory, following no link and staying on its file system."""
    removed: list[str] = []
    if not top.is_dir():
        return removed
    device = top.stat().st_dev
    for parent, directories, names, descriptor in os.fwalk(str(top), topdown=False, follow_symlinks=False):
        for name in (*names, *directories):
            path = Path(parent, name)
            try:
                if _remove_entry(name, descriptor, uid, device):
                    removed.append(str(path))
            except FileNotFoundError:
                continue
            except OSError as error:
                # For example a folder in which another user has put a file.
                log.event("left behind", level="warning", path=str(path), error=str(error))
    return removed


def _sudoers_file(user: str) -> Path:
    return SUDOERS / f"gpuaas-{user}"


def _check_sudoers(path: Path) -> None:
    commands.run(["visudo", "-cf", str(path)])


def _personal_files(user: str) -> list[Path]:
    return [Path("/var/spool/cron/crontabs") / user, Path("/var/lib/systemd/linger") / user]


def _remove_tree(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def _remove_entry(name: str, descriptor: int, uid: int, device: int) -> bool:
    # Relative to the open folder, so nobody can swap a folder for a link between look and removal.
    found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if found.st_uid != uid or found.st_dev != device:
        return False
    if stat.S_ISDIR(found.st_mode):
        os.rmdir(name, dir_fd=descriptor)
    else:
        os.unlink(name, dir_fd=descriptor)
    return True
