"""Run host commands and print progress. The only module that starts helper processes."""

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

KILLED_WITH_PARENT = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--pid", "--mount-proc", "--fork", "--kill-child=KILL"),
)
"""The prefix of a long command. If this process is killed, the kernel ends the command with its children and mounts."""

_LOCKS_HELD: set[int] = set()
"""Files of locks that commands inherit. If this process is killed, its locks are held until its commands have ended."""


def progress(message: str) -> None:
    """Print one line on standard error. Standard output contains only the result, as `-o json` needs it."""
    print(f"[{time.monotonic() - STARTED_AT:6.1f} s] {message}", file=sys.stderr, flush=True)


def run(argv: Sequence[str], *, stdin: bytes = b"", environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its standard output. Raises CommandFailed with its last lines of output."""
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
    """Run a long command. Print as progress the first group of each output line that matches the pattern `shown`."""
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
            if match := re.match(shown, line):
                progress(f"  {match[1]}")
    if process.returncode != 0:
        raise failed(argv, process.returncode, log)


def failed(argv: Sequence[str], exit_code: int, log: Sequence[str]) -> errors.CommandFailed:
    shown = " ".join(argv).removeprefix(" ".join(KILLED_WITH_PARENT)).strip()
    tail = "\n".join(f"    {line}" for line in log[-15:])
    return errors.CommandFailed(f"`{shown[:100]}` exited with code {exit_code}:\n{tail}")


@contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold an exclusive lock. The kernel releases it when this process and its commands have ended, even by a kill."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another gpuaas-lab to finish with {what}")
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
    """Poll until the condition is true; return False after the timeout."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
