"""SSH sessions by what opened them, from the notes that sshd's programs leave. Called by revocation, authorized_keys.

sshd asks small programs of ours for the principals or the keys of a user. Each first notes which process serves whom
and then reads what is allowed; the agent first writes what is allowed and then looks at the notes. Whichever comes
first, one of the two sees the other: no session slips through in between.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from gpuaas_agent import files, log
from gpuaas_agent.handlers import spec, ssh_files

END_TIMEOUT_S = 4.0
SCAN_INTERVAL_S = 0.02
NOTING = f"""umask 077
mkdir -p {ssh_files.SESSIONS}
stat=$(cat "/proc/$PPID/stat")
set -- ${{stat##*) }}
echo "$opener ${{20}}" >"{ssh_files.SESSIONS}/.$PPID"
mv "{ssh_files.SESSIONS}/.$PPID" "{ssh_files.SESSIONS}/$PPID"
"""
"""Shell: note $opener for the parent, the sshd process that serves the connection for as long as it lasts."""


def end(is_over: Callable[[str], bool]) -> int:
    """End every session whose opener's time is over, what runs in it included; answers how many there were."""
    found = [pid for pid, opener in noted().items() if is_over(opener)]
    for pid in found:
        _end_tree(pid)
        files.remove(ssh_files.SESSIONS / str(pid))
        log.event("session ended", pid=pid)
    return len(found)


def noted() -> dict[int, str]:
    """Living sshd processes and what opened each session; notes of processes that are gone are removed."""
    living: dict[int, str] = {}
    for path in _notes():
        opener, started = (files.read(path) or b"- -").decode().split()
        if started == start_of(int(path.name)):
            living[int(path.name)] = opener
        else:
            files.remove(path)
    return living


def start_of(pid: int) -> str:
    """When the process started, in the kernel's own count; empty when there is none. A pid alone may be used again."""
    stat = _stat(pid)
    return stat[19] if stat else ""


def tree(parents: dict[int, int], top: int) -> set[int]:
    """The process and all its descendants, given each process's parent."""
    found = {top}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


def _end_tree(top: int) -> None:
    # Stopped before they are killed: what runs could fork a child that the next look would not find in the tree.
    stopped: set[int] = set()
    while True:
        found = tree(_parents(), top)
        if found <= stopped:
            break
        for pid in found - stopped:
            _signal(pid, signal.SIGSTOP)
        stopped |= found
    started = {pid: start_of(pid) for pid in stopped}
    for pid in stopped:
        _signal(pid, signal.SIGKILL)
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while any(start and start == start_of(pid) and not _is_dead(pid) for pid, start in started.items()):
        if time.monotonic() > deadline_s:
            raise spec.HandlerError("session_remains", f"the session of sshd process {top} does not end")
        time.sleep(SCAN_INTERVAL_S)


def _notes() -> list[Path]:
    if not ssh_files.SESSIONS.is_dir():
        return []
    return [path for path in ssh_files.SESSIONS.iterdir() if path.name.isdigit()]


def _parents() -> dict[int, int]:
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    stats = {pid: _stat(pid) for pid in pids}
    return {pid: int(stat[1]) for pid, stat in stats.items() if stat}


def _is_dead(pid: int) -> bool:
    stat = _stat(pid)
    return not stat or stat[0] in "ZX"


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command's name, which may hold anything; empty when the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
