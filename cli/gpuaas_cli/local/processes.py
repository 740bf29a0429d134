"""Background processes that continue after the command: started detached, recorded in a file, and stopped only if the
pid still belongs to the same process."""

import collections
import contextlib
import datetime
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gpuaas_cli import failures
from gpuaas_cli.client import home

GRACE_S = 10.0


class Record(msgspec.Struct, frozen=True):
    """A started process. Start time and boot id identify it, because its pid can be reused."""

    pid: int
    started_ticks: int
    boot_id: str
    command: list[str]
    started_at: datetime.datetime


class Process:
    """One background process, with the files NAME.pid and NAME.log in a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self._file = folder / f"{name}.pid"

    def running(self) -> Record | None:
        record = self._load()
        return record if record is not None and _is_alive(record) else None

    def start(self, command: Sequence[str]) -> Record:
        """Start the process in a session of its own, so that closing the terminal does not end it."""
        self.log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(self.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        now = datetime.datetime.now(datetime.UTC)
        record = Record(child.pid, *_identity(child.pid)[1:], list(command), started_at=now)
        home.write_private(self._file, msgspec.json.encode(record))
        # The child continues after this process; without a return code Python would warn about it.
        child.returncode = 0
        return record

    def stop(self) -> bool:
        """Stop the process: SIGTERM, then SIGKILL after `GRACE_S`. Return whether it was running."""
        record = self._load()
        stopped = record is not None and _end(record)
        self._file.unlink(missing_ok=True)
        return stopped

    def died(self) -> failures.Failure:
        with self.log.open(errors="replace") as file:
            last = "".join(f"    {line.rstrip()}\n" for line in collections.deque(file, maxlen=8))
        message = f"The {self.name} ended unexpectedly; last log lines:\n{last} "
        return failures.Failure(message, fix=f"less {self.log}", code="died")

    def _load(self) -> Record | None:
        try:
            return msgspec.json.decode(self._file.read_bytes(), type=Record)
        except (FileNotFoundError, msgspec.DecodeError):
            return None


def _end(record: Record) -> bool:
    try:
        handle = os.pidfd_open(record.pid)
    except ProcessLookupError:
        return False
    try:
        # Check the identity after opening the handle: from then on it always means the same process.
        if not _is_alive(record):
            return False
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):  # it may end at any time
                signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], GRACE_S)[0]:
                break
        return True
    finally:
        os.close(handle)


def _is_alive(record: Record) -> bool:
    try:
        state, started_ticks, boot_id = _identity(record.pid)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" and started_ticks == record.started_ticks and boot_id == record.boot_id


def _identity(pid: int) -> tuple[str, int, str]:
    """Return the state of a process, its start time in ticks and the boot id."""
    # The program's name is in brackets and may contain any character, so fields are counted after it.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], int(fields[19]), Path("/proc/sys/kernel/random/boot_id").read_text().strip()
