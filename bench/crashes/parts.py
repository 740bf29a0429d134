"""The simulated Slurm of the app's tests."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "apps" / "slurm" / "tests"))
from slurm_driver import QUICK_COMMAND, SlurmDriver

__all__ = ["QUICK_COMMAND", "SlurmDriver"]
