"""Run scripts of the SDK in a shell of this host, with programs of the test in the place of the system's."""

import os
import subprocess
from pathlib import Path


def run(script: str, *arguments: str, programs: Path) -> int:
    """Run a script as `Machine.script` does, with these programs before the system's on the search path."""
    path = f"{programs}:{os.environ['PATH']}"
    bash = ["bash", "-seuo", "pipefail", "--", *arguments]
    return subprocess.run(bash, input=script, text=True, env={**os.environ, "PATH": path}, check=False).returncode


def printed(script: str, *arguments: str) -> list[str]:
    """Run a script as `Machine.script` does, and return the lines that it prints."""
    bash = ["bash", "-seuo", "pipefail", "--", *arguments]
    return subprocess.run(bash, input=script, text=True, capture_output=True, check=True).stdout.splitlines()


def program(path: Path, text: str) -> Path:
    """Write a program that the scripts find."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
