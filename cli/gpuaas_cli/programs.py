"""Find the other programs of the platform. `main` replaces itself with them, `local` starts them."""

import os
import shutil
import sys
from pathlib import Path


def path_hint() -> list[str]:
    """Return the command to type first if `gpuaas` is not on the PATH, for example after `make up` in a new clone."""
    return [] if shutil.which("gpuaas") else [f"export PATH={Path(sys.executable).parent}:$PATH"]


def find(name: str) -> str | None:
    """Return the program in the folder of this Python interpreter, else the one on the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
