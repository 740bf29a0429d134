"""The observer of an allocation: a Unix user that can read and cannot change anything. App controllers log in as this
user between operations. `allocation.provision` makes it, `allocation.release` removes it."""

from __future__ import annotations

import shutil
from pathlib import Path

from gpuaas_agent import commands, errors, files
from gpuaas_agent.host import accounts, claims

CRON_ALLOW, CRON_DENY = Path("/etc/cron.allow"), Path("/etc/cron.deny")
AT_ALLOW, AT_DENY = Path("/etc/at.allow"), Path("/etc/at.deny")
DEBIAN = Path("/etc/debian_version")


def name_of(user: str) -> str:
    """Return the name of the observer that belongs to the user of an allocation."""
    return f"{user}-ro"


def ensure(user: str, allocation_id: str) -> str:
    """Make the observer, without sudo, password, groups and a writable home, unless it exists; return its name."""
    observer, home = name_of(user), accounts.home_of(name_of(user))
    claims.claim(observer, allocation_id)
    if accounts.uid_of(observer) is None:
        argv = ["useradd", "--no-create-home", "--home-dir", str(home), "--shell", "/bin/bash", "--password", "*"]
        argv += ["--key", f"UID_MAX={accounts.LOCAL_UID_MAX}", "--key", f"GID_MAX={accounts.LOCAL_UID_MAX}"]
        commands.run([*argv, "--comment", "GPUaaS observer", observer])
    if not accounts.uid_of(observer):
        raise errors.TaskFailed("user_not_made", f"useradd succeeded, but user {observer} does not exist or is root")
    commands.run(["usermod", "--expiredate", "", "--groups", "", observer])
    files.make_directory(home, 0o555)
    _deny_schedules(observer)
    return observer


def claimed(user: str, allocation_id: str) -> str:
    """Return the observer that this agent made for the allocation; empty if there is none."""
    observer = name_of(user)
    return observer if claims.owner(observer) == allocation_id else ""


def allow_schedules(observer: str) -> None:
    """Remove the observer from the lists of users who may not use cron and at. An empty list of cron is removed on
    Debian, where it means the same as none. An empty list of at allows at to everyone, so it stays."""
    for path in (CRON_DENY, AT_DENY):
        lines = _lines(path)
        left = [line for line in lines if line != observer]
        if left != lines and not left and path == CRON_DENY and DEBIAN.exists():
            files.remove(path)
        elif left != lines:
            _write(path, left)


def _deny_schedules(observer: str) -> None:
    """Refuse cron and at to the observer. If there is a list of allowed users, the observer is not in it.

    Without any list, cron allows everyone on Debian and only root elsewhere, and at allows only root. A new list of
    denied users would allow all others, so it is made only where that changes nothing for them."""
    has_cron = shutil.which("crontab") is not None
    if has_cron and not CRON_ALLOW.exists() and (CRON_DENY.exists() or DEBIAN.exists()):
        _add(CRON_DENY, observer)
    if not AT_ALLOW.exists() and AT_DENY.exists():
        _add(AT_DENY, observer)


def _add(path: Path, observer: str) -> None:
    lines = _lines(path)
    if observer not in lines:
        _write(path, [*lines, observer])


def _lines(path: Path) -> list[str]:
    return (files.read(path) or b"").decode().splitlines()


def _write(path: Path, lines: list[str]) -> None:
    files.put(path, "".join(f"{line}\n" for line in lines).encode(), 0o644)
