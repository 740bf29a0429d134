"""The last line of a test run states what was skipped and why."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[2] / "conftest.py"
SOURCE = """
import pytest


@pytest.mark.parametrize("number", [1, 2])
def test_needs_a_disk(number):
    pytest.skip("no disk")


def test_needs_nothing():
    pass
"""


def _last_line(folder: Path, *arguments: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_sample.py").write_text(SOURCE)
    # As in pyproject.toml: the plugin takes longer to load than the rest of the run.
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:schemathesis", "--rootdir", str(folder)]
    command += arguments
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    return ran.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "Skipped: 2 (no disk)."),
        (["--deselect", "test_sample.py::test_needs_nothing"], "Skipped: 2 (no disk), 1 (not selected by -k or -m)."),
        (["test_sample.py::test_needs_nothing"], "Skipped: nothing."),
    ],
    ids=["skipped", "deselected", "none"],
)
def test_the_last_line_counts_skipped_tests_by_reason(arguments: list[str], line: str, tmp_path: Path) -> None:
    assert _last_line(tmp_path, *arguments) == line
