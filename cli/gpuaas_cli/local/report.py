"""Report the progress of `gpuaas up`: a line per step with its time, and the output of the programs it runs."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from gpuaas_cli import failures, output, programs

_CLEAR = "\r\x1b[K"
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)
"""Ctrl-C, as the parent process sees it, and as sudo reports it."""


class Report:
    """Progress is for people, so it goes to stderr."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"

    @contextlib.contextmanager
    def step(self, doing: str, done: str) -> Iterator[None]:
        """`doing` shows on a terminal while it runs; `done` stays, with the time it took."""
        started = time.monotonic()
        if self._terminal:
            print(f"… {doing}", end="", file=sys.stderr, flush=True)
        try:
            yield
        except BaseException:
            self._line("✗", "31", doing)
            raise
        self._line("✓", "32", f"{done} ({_took(time.monotonic() - started)})")

    def note(self, text: str) -> None:
        output.talk(f"{self._clear()}  {text}")

    def commands(self, *lines: str) -> None:
        """What to type next."""
        for line in (*programs.path_hint(), *lines):
            self.note(f"  {line}")

    def total(self) -> str:
        return _took(time.monotonic() - self._started)

    def stream(self, command: Sequence[str]) -> str:
        """Run a program, show its output line by line, and return it. It may run for minutes."""
        with subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        ) as process:
            lines: list[str] = []
            for line in process.stdout or ():
                lines.append(line.rstrip("\n"))
                self.note(output.clean(lines[-1]))
        if process.returncode != 0:
            raise _program_failed(command, process.returncode, lines)
        return "\n".join(lines)

    def _line(self, mark: str, colour: str, text: str) -> None:
        if self._terminal and not os.environ.get("NO_COLOR"):
            mark = f"\x1b[{colour}m{mark}\x1b[0m"
        output.talk(f"{self._clear()}{mark} {text}")

    def _clear(self) -> str:
        return _CLEAR if self._terminal else ""


def captured(command: Sequence[str]) -> str:
    """Run a program for its answer; its output is shown only if it fails."""
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise _program_failed(command, ended.returncode, (ended.stderr or ended.stdout).splitlines())
    return ended.stdout


def _program_failed(command: Sequence[str], exit_code: int, lines: Sequence[str]) -> failures.Failure:
    # Names of files stay, values that follow flags may be long: the first words identify the program.
    what = " ".join(os.path.basename(word) for word in command[:3] if not word.startswith("-"))
    if exit_code in _INTERRUPTED:
        fix = "The same command continues where this ended."
        return failures.Failure(f"{what} was interrupted", fix=fix, code="interrupted", exit_code=failures.DETACHED)
    last = output.clean(lines[-1]) if lines else "no output"
    return failures.Failure(f"{what} ended with {exit_code}: {last}", fix=" ".join(command), code="program_failed")


def _took(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
