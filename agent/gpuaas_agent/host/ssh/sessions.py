"""SSH sessions by the certificate or key that opened them. Used by the `ssh.trust` and `authorized_keys` handlers.

sshd runs a program of the agent to get the principals or the keys of a user. The program first records which process
serves which certificate or key, and then reads what is allowed. The agent first writes what is allowed, and then reads
the records. So a session that opens at this moment is refused by the program or ended by the agent.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gpuaas_agent import errors, files, log
from gpuaas_agent.host import processes
from gpuaas_agent.host.ssh import paths

_NO_AUDIT_SESSION = str(2**32 - 1)
_SCOPE = re.compile(r"^\d+:[^:\n]*:/user\.slice/user-\d+\.slice/session-[^/\n]+\.scope(?=/|$)", re.MULTILINE)
"""Anchored: below their own slice, users can make control groups with any name."""
END_TIMEOUT_S = 4.0
SCAN_INTERVAL_S = 0.02
RECORD_OPENER = f"""umask 077
mkdir -p {paths.SESSIONS}
stat=$(cat "/proc/$PPID/stat")
set -- ${{stat##*) }}
echo "$opener ${{20}}" >"{paths.SESSIONS}/.$PPID"
mv "{paths.SESSIONS}/.$PPID" "{paths.SESSIONS}/$PPID"
"""
"""Shell code that records $opener for its parent, the sshd process that serves the connection until it closes."""


def end(is_refused: Callable[[str], bool]) -> int:
    """End every session whose certificate or key is refused, with all its processes; return how many were ended."""
    ended = [pid for pid, opener in recorded().items() if is_refused(opener)]
    for pid in ended:
        _end_tree(pid)
        files.remove(paths.SESSIONS / str(pid))
        log.info("ssh.session_ended", pid=pid)
    return len(ended)


def recorded() -> dict[int, str]:
    """Return the certificate or key of each running sshd process; remove the records of processes that ended."""
    living: dict[int, str] = {}
    for path in _records():
        opener, started = (files.read(path) or b"- -").decode().split()
        if started == start_of(int(path.name)):
            living[int(path.name)] = opener
        else:
            files.remove(path)
    return living


def start_of(pid: int) -> str:
    """Return the start time of the process, because its id can be used again later; empty if it does not exist."""
    stat = _stat(pid)
    return stat[19] if stat else ""


def tree(parents: dict[int, int], top: int) -> set[int]:
    """Return the process `top` and all its descendants. `parents` has the parent of each process."""
    members = {top}
    while True:
        more = {pid for pid, parent in parents.items() if parent in members} - members
        if not more:
            return members
        members |= more


def marks_of(control_group: str, audit_session: str, status: str, environment: bytes) -> set[str]:
    """Return what identifies the login session of a process apart from its ancestors: the scope of logind, the number
    in the audit subsystem or, on a host without logind, the connection in the environment.

    Users can write their environment, so it counts only between processes of the same user, in the unit of sshd. A
    scheduler's job has the environment of the session that submitted it, and is not part of the session."""
    marks = {match.group() for match in _SCOPE.finditer(control_group)}
    if audit_session.strip() not in ("", "0", _NO_AUDIT_SESSION):
        marks.add(f"audit {audit_session.strip()}")
    connection = [item for item in environment.split(b"\0") if item.startswith(b"SSH_CONNECTION=")]
    if connection and processes.SSHD_UNIT.search(control_group):
        uid = dict(line.split(":", 1) for line in status.splitlines() if ":" in line).get("Uid", "").split()[:1]
        marks.add(f"connection {uid} {connection[0]!r}")
    return marks


def _end_tree(top: int) -> None:
    # A process that detached itself has left the tree, but not the session. What marks the session is read first,
    # while its processes live.
    marks: set[str] = set().union(*(_marks(pid) for pid in tree(_parents(), top))) - _marks(os.getpid())
    # Stop all before killing any: a running process could fork a child that leaves the tree when its parent dies.
    stopped: set[int] = set()
    while True:
        members = tree(_parents(), top) | _with_marks(marks)
        if members <= stopped:
            break
        for pid in members - stopped:
            _signal(pid, signal.SIGSTOP)
        stopped |= members
    started = {pid: start_of(pid) for pid in stopped}
    for pid in stopped:
        _signal(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while any(start and start == start_of(pid) and not _is_dead(pid) for pid, start in started.items()):
        if time.monotonic() > deadline_s:
            raise errors.TaskFailed(
                "session_remains", f"the SSH session of sshd process {top} did not end after SIGKILL"
            )
        time.sleep(SCAN_INTERVAL_S)


def _marks(pid: int) -> set[str]:
    texts = [_bytes(Path(f"/proc/{pid}/{name}")) for name in ("cgroup", "sessionid", "status")]
    control_group, audit_session, status = (text.decode(errors="replace") for text in texts)
    return marks_of(control_group, audit_session, status, _bytes(Path(f"/proc/{pid}/environ")))


def _with_marks(marks: set[str]) -> set[int]:
    """Return the processes that belong to a session with one of these marks."""
    if not marks:
        return set()
    pids = {int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()} - {1, os.getpid()}
    return {pid for pid in pids if marks & _marks(pid) and not _is_dead(pid)}


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


def _records() -> list[Path]:
    if not paths.SESSIONS.is_dir():
        return []
    return [path for path in paths.SESSIONS.iterdir() if path.name.isdigit()]


def _parents() -> dict[int, int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    stats = {pid: _stat(pid) for pid in pids}
    return {pid: int(stat[1]) for pid, stat in stats.items() if stat}


def _is_dead(pid: int) -> bool:
    stat = _stat(pid)
    return not stat or stat[0] in "ZX"


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the program's name, which may contain any bytes; empty if it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
