"""End all processes of a user, including those started through sudo. Called by `allocation.release` and
`allocation.people`."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import time
from pathlib import Path

from gpuaas_agent import errors

END_TIMEOUT_S = 20.0
SCAN_INTERVAL_S = 0.05
SSHD_UNIT = re.compile(r"/sshd?(@[^/]*)?\.service")
"""The control group of login sessions on a host without logind."""
TIMER_UNIT = re.compile(r"/(cron|crond|anacron|atd)\.service")
"""The control groups of what cron and at started. They open no session of logind."""


@dataclasses.dataclass(frozen=True)
class Observed:
    """The fields of one process in /proc that show its user."""

    status: str
    login_uid: str
    control_group: str
    environment: bytes


def end_all(uid: int, *, login_only: bool = False) -> int:
    """Kill all processes of the user, or only those of login sessions, and return how many there were. Fails if one
    does not end."""
    if uid == 0:
        raise errors.TaskFailed("user_is_root", "refusing to end root's processes")
    killed: set[int] = set()
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while True:
        alive = of_user(uid, login_only=login_only)
        if not alive:
            return len(killed)
        if time.monotonic() > deadline_s:
            listed = ", ".join(str(pid) for pid in sorted(alive))
            raise errors.TaskFailed("processes_remain", f"processes of uid {uid} did not end after SIGKILL: {listed}")
        for pid in alive:
            _kill(pid)
        killed |= alive
        time.sleep(SCAN_INTERVAL_S)


def of_user(uid: int, *, login_only: bool = False) -> set[int]:
    """Return the living processes of the user, including those it runs as another user."""
    numbers = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()}
    return {pid for pid in numbers - {1, os.getpid()} if _belongs(Path("/proc") / str(pid), uid, login_only=login_only)}


def is_of_user(process: Observed, uid: int) -> bool:
    """Return whether the process belongs to the user: by its uids, its login, its session, or the caller of sudo.

    All four are compared, because not every host has audit, logind and PAM."""
    fields = dict(line.split(":", 1) for line in process.status.splitlines() if ":" in line)
    if fields.get("State", "").strip().startswith(("Z", "X")):
        return False
    return (
        str(uid) in fields.get("Uid", "").split()
        or process.login_uid.strip() == str(uid)
        or f"/user-{uid}.slice" in process.control_group
        or f"SUDO_UID={uid}".encode() in process.environment.split(b"\0")
    )


def is_of_login(process: Observed, uid: int) -> bool:
    """Return whether the process belongs to a login session of the user, and not to a service or a scheduler's job.

    logind puts a session into the user's slice. On a host without logind, it stays in the unit of sshd. A process that
    cron or at started is like one of a session: no scheduler ends it, so it would outlive the person's access."""
    group = process.control_group
    return f"/user-{uid}.slice" in group or any(unit.search(group) for unit in (SSHD_UNIT, TIMER_UNIT))


def _belongs(process: Path, uid: int, *, login_only: bool = False) -> bool:
    try:
        status = (process / "status").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The name of a control group need not be valid UTF-8.
    login_uid, control_group = (_optional(process / name).decode(errors="replace") for name in ("loginuid", "cgroup"))
    observed = Observed(status, login_uid, control_group, _optional(process / "environ"))
    return is_of_user(observed, uid) and (not login_only or is_of_login(observed, uid))


def _optional(path: Path) -> bytes:
    # Kernels without audit have no loginuid, and a process may end between two reads.
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
