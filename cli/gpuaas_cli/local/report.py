"""Show the progress of `gpuaas up` on stderr, one line per step, and run its programs with their output."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from typing import Any

from gpuaas_cli import failures, output, programs, terminal
from gpuaas_cli.work import follow

_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""Exit statuses that mean that Ctrl-C ended the program: the first if it was run directly, the second through sudo."""


@contextlib.contextmanager
def step(doing: str, done: str) -> Iterator[None]:
    """Show `doing` on a terminal while the step runs, then print `done` with the duration."""
    started_s = time.monotonic()
    try:
        with follow.waiting(doing) if follow.on_terminal() else contextlib.nullcontext():
            yield
    except BaseException:
        _line("✗", doing)
        raise
    _line("✓", f"{done} ({took(started_s)})")


def note(text: str) -> None:
    output.talk(f"  {text}")


def commands(*lines: str) -> None:
    """Print commands that the user can type next."""
    for line in (*programs.path_hint(), *lines):
        note(f"  {line}")


def took(started_s: float) -> str:
    seconds = time.monotonic() - started_s
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def require_program(name: str) -> str:
    result = programs.find(name)
    if result is None:
        fix = f"Install the package that brings {name}"
        raise failures.Failure(f"The program {name} is not installed", fix=fix, code="missing")
    return result


class Lab:
    """Runs `gpuaas-lab`, which needs root to start machines."""

    def __init__(self, name: str) -> None:
        """Raise if root is not available, before anything is created or stopped, to avoid a partly created cloud."""
        self._program, self._which = require_program("gpuaas-lab"), ["--lab", name]
        asked = subprocess.run([self._program, "check"], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        if asked.returncode != 0:
            message = "Machines need root or sudo that asks for no password, and there is neither"
            fix = "sudo -v, then the same again; or without machines: gpuaas up --control-plane-only"
            raise failures.Failure(message, fix=fix, code="no_privileges")

    def ask(self, *words: str) -> Any:
        return json.loads(captured([self._program, *words, *self._which]))

    def run(self, *words: str) -> None:
        """Run a command and show its output line by line, because it may take minutes."""
        command = [self._program, *words, *self._which]
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        ) as process:
            line = ""
            for line in process.stdout or ():
                note(line.rstrip("\n"))
        _require_success(command, process.returncode, line)


def captured(command: Sequence[str]) -> str:
    """Run a program and return its output; raise with the last line if it fails."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    _require_success(command, ended.returncode, ended.stderr or ended.stdout)
    return ended.stdout


def _require_success(command: Sequence[str], exit_code: int, printed: str) -> None:
    # Only the first words, because values after flags may be long.
    what = " ".join(os.path.basename(word) for word in command[:3] if not word.startswith("-"))
    if exit_code in _INTERRUPTED:
        fix = "Run the same command again: it continues where this run ended."
        raise failures.Failure(f"{what} was interrupted", fix=fix, code="interrupted", exit_code=failures.DETACHED)
    if exit_code != 0:
        last = printed.splitlines()[-1] if printed else "no output"
        raise failures.Failure(f"{what} ended with {exit_code}: {last}", fix=" ".join(command), code="program_failed")


def _line(mark: str, text: str) -> None:
    terminal.talk(text, mark=mark, colour=follow.on_terminal() and not os.environ.get("NO_COLOR"))
