"""Attack scripts start servers with the helpers of the platform's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "platform" / "tests"))
