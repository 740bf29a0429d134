"""Find the other programs of the platform. `main` hands over to them, `local` starts them."""

import os
import shutil
import sys
from pathlib import Path


def path_hint() -> list[str]:
    """The command to type first if the shell does not find `gpuaas` yet, as after `make up` in a fresh clone."""
    return [] if shutil.which("gpuaas") else [f"export PATH={Path(sys.executable).parent}:$PATH"]


def find(name: str) -> str | None:
    """Return the program beside this interpreter, of the same installation, else the one on the search path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
