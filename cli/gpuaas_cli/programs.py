"""Find the other programs of the platform. `main` replaces itself with them, `local` and `commands` start them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def path_hint() -> list[str]:
    """Return the command to type first if `gpuaas` is not on the PATH, for example after `make up` in a new clone."""
    return [] if shutil.which("gpuaas") else [f"export PATH={Path(sys.executable).parent}:$PATH"]


def find(name: str) -> str | None:
    """Return the program in the folder of this Python interpreter, else the one on the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> int:
    """Run a program and return its exit status. It gets the signals that stop this process, and ends before it. `env`
    are variables of its environment, beside those of this process."""
    received: list[int] = []
    started: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        received.append(number)
        for program in started:
            program.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with subprocess.Popen(command, env={**os.environ, **(env or {})}) as program:
            started.append(program)
            for number in received:  # while the program was being started
                program.send_signal(number)
            return program.wait()
    finally:
        for restored, handler in before.items():
            signal.signal(restored, handler)
