"""Find the other programs of the platform. `main` hands over to them, `local` starts them."""

import os
import shutil
import sys
from pathlib import Path


def find(name: str) -> str | None:
    """Beside this interpreter, where the same installation put it, else on the search path."""
    beside = Path(sys.executable).parent / name
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)
