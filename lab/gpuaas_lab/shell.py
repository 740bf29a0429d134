"""Running host commands and telling the user how long things take. The only place that starts helper processes."""

import fcntl
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuaas_lab import errors

STARTED_AT = time.monotonic()

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--mount-proc", "--fork", "--kill-child=KILL")
"""Put before a long command: when this process is killed, the command, all it started and its mounts are gone too."""

_LOCKS_HELD: set[int] = set()
"""Inherited by every command: when this process is killed, its locks last until the commands it left have ended."""


def say(message: str) -> None:
    """One progress line on standard error, so that standard output stays clean for `-o json`."""
    print(f"[{time.monotonic() - STARTED_AT:6.1f} s] {message}", file=sys.stderr, flush=True)


def run(argv: Sequence[str], *, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
    """Run to the end and return its standard output; a non-zero exit raises with the last lines it wrote."""
    result = subprocess.run(
        argv, input=stdin, capture_output=True, env=environment, check=False, pass_fds=tuple(_LOCKS_HELD)
    )
    if result.returncode != 0:
        text = (result.stderr or result.stdout).decode(errors="replace").strip()
        raise failed(argv, result.returncode, text.splitlines())
    return result.stdout.decode(errors="replace")


def succeeds(argv: Sequence[str]) -> bool:
    try:
        run(argv)
    except errors.CommandFailed:
        return False
    return True


def run_with_progress(argv: Sequence[str], *, shown: str) -> None:
    """Run a long command; the first group of the pattern `shown` makes a progress line, the rest shows on failure."""
    log: list[str] = []
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        pass_fds=tuple(_LOCKS_HELD),
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line.rstrip())
            if found := re.match(shown, line):
                say(f"  {found[1]}")
    if process.returncode != 0:
        raise failed(argv, process.returncode, log)


def failed(argv: Sequence[str], exit_code: int, log: Sequence[str]) -> errors.CommandFailed:
    shown = " ".join(argv).removeprefix(" ".join(DIES_WITH_US)).strip()
    tail = "\n".join(f"    {line}" for line in log[-15:])
    return errors.CommandFailed(f"`{shown[:100]}` ended with exit code {exit_code}:\n{tail}")


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock. The kernel drops it when this process and its commands end, however they end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another gpuaas-lab to finish with {what}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        _LOCKS_HELD.add(descriptor)
        yield
    finally:
        _LOCKS_HELD.discard(descriptor)
        os.close(descriptor)


def write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(text)
    draft.replace(path)


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Poll until the condition holds; false when the time is over."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
