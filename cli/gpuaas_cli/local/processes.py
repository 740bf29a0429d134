"""Background processes that outlive the command: started detached, remembered in a file, stopped only if the pid still
means the same process."""

import contextlib
import datetime
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuaas_cli.client import home

GRACE_S = 10.0
_LOG_TAIL_BYTES = 65536


class Record(msgspec.Struct, frozen=True):
    """A pid may belong to another process by now; start time and boot id identify it."""

    pid: int
    started_ticks: int
    boot_id: str
    command: list[str]
    started_at: datetime.datetime


class Process:
    """One named background process of a folder: NAME.pid and NAME.log."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._file = folder / f"{name}.pid"

    def running(self) -> Record | None:
        record = self._load()
        return record if record is not None and _is_alive(record) else None

    def start(self, command: Sequence[str]) -> Record:
        """In a session of its own, so that closing the terminal does not end it."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            started = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, start_new_session=True
            )
        finally:
            os.close(handle)
        record = Record(
            pid=started.pid,
            started_ticks=_stat(started.pid)[1],
            boot_id=_boot_id(),
            command=list(command),
            started_at=datetime.datetime.now(datetime.UTC),
        )
        home.write_private(self._file, msgspec.json.encode(record))
        # The child outlives us on purpose; Python should not warn that it is not waited for.
        started.returncode = 0
        return record

    def stop(self, *, grace_s: float = GRACE_S) -> bool:
        """True if it ran. Asks first, insists after the grace time."""
        record = self._load()
        stopped = record is not None and _end(record, grace_s)
        self._file.unlink(missing_ok=True)
        return stopped

    def last_lines(self, count: int = 8) -> list[str]:
        try:
            with self.log.open("rb") as file:
                file.seek(max(0, self.log.stat().st_size - _LOG_TAIL_BYTES))
                return file.read().decode(errors="replace").splitlines()[-count:]
        except FileNotFoundError:
            return []

    def _load(self) -> Record | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def _end(record: Record, grace_s: float) -> bool:
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        # The handle holds the process fast; only now is the check of its identity worth anything.
        if not _is_alive(record):
            return False
        for number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, GRACE_S)):
            with contextlib.suppress(ProcessLookupError):  # it may end by itself at any moment
                signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], patience_s)[0]:
                break
        return True
    finally:
        os.close(handle)


def _is_alive(record: Record) -> bool:
    try:
        state, started_ticks = _stat(record.pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" and started_ticks == record.started_ticks and _boot_id() == record.boot_id


def _stat(pid: int) -> tuple[str, int]:
    # The program's name is in brackets and may contain anything, so fields are counted from its end.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
