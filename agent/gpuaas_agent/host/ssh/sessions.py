"""SSH sessions by the certificate or key that opened them. Used by the `ssh.trust` and `authorized_keys` handlers.

sshd runs a program of the agent to get the principals or the keys of a user. The program first records which process
serves which certificate or key, and then reads what is allowed. The agent first writes what is allowed, and then reads
the records. So a session that opens at this moment is refused by the program or ended by the agent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gpuaas_agent import errors, files, log
from gpuaas_agent.host.ssh import paths

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


def _end_tree(top: int) -> None:
    # Stop all before killing any: a running process could fork a child that leaves the tree when its parent dies.
    stopped: set[int] = set()
    while True:
        members = tree(_parents(), top)
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
