"""The parts of the end-to-end tests that the campaigns use: a local cloud, and what a machine is made of."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "tests" / "e2e"))
import machine_state
from local_cloud import BIN, LocalCloud, Project, empty_cloud

__all__ = ["BIN", "LocalCloud", "Project", "empty_cloud", "machine_state"]
