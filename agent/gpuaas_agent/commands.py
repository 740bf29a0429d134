"""Run programs, always from an argument list, with a fixed environment and a time limit."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": "/root"}


class CommandFailed(Exception):
    """A program could not be started, timed out, or exited with a status other than 0."""

    def __init__(self, argv: list[str], reason: str) -> None:
        super().__init__("`{}` {}".format(" ".join(argv), reason))
        self.argv = argv


def run(argv: list[str], *, content: bytes = b"", files: Sequence[int] = (), timeout_s: float = 60) -> bytes:
    """Run a program that inherits the open `files`, and return its standard output. Raises CommandFailed."""
    try:
        process = subprocess.run(
            argv, input=content, capture_output=True, env=ENVIRONMENT, pass_fds=files, timeout=timeout_s, check=False
        )
    except OSError as error:
        raise CommandFailed(argv, f"could not be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(argv, f"did not end within {timeout_s:g} s") from error
    if process.returncode != 0:
        output = (process.stderr or process.stdout).decode(errors="replace").strip()[-800:]
        raise CommandFailed(argv, f"exited with status {process.returncode}: {output}")
    return process.stdout


def succeeds(argv: list[str], *, files: Sequence[int] = (), timeout_s: float = 60) -> bool:
    """Return whether the program exited with status 0."""
    try:
        run(argv, files=files, timeout_s=timeout_s)
    except CommandFailed:
        return False
    return True
