"""The runner of planted bugs: what it counts as caught, and that every planted bug of the tree can be planted."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MUTANTS = ROOT / "tools" / "mutants"
SOURCE = "def larger(left: int, right: int) -> int:\n    return max(left, right)\n"
TEST = "import numbers_of\n\n\ndef test_the_larger_number_is_returned():\n    assert numbers_of.larger(1, 2) == 2\n"


def _mutants(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(MUTANTS), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one module and one test."""
    (tmp_path / "tests" / "mutants").mkdir(parents=True)
    (tmp_path / "tests" / "numbers_of.py").write_text(SOURCE)
    (tmp_path / "tests" / "test_numbers.py").write_text(TEST)
    # As in pyproject.toml: the plugin takes longer to load than the rest of a run.
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis\n")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def _add_mutant(tree: Path, name: str, old: str, new: str, extra: str = "") -> None:
    lines = [
        "claim = 'The larger number is returned.'",
        "path = 'tests/numbers_of.py'",
        f"old = '''{old}'''",
        f"new = '''{new}'''",
        "tests = ['tests/test_numbers.py']",
        extra,
    ]
    (tree / "tests" / "mutants" / f"{name}.toml").write_text("\n".join(lines))


def test_a_bug_that_a_test_notices_is_caught_and_others_survive(tree: Path) -> None:
    _add_mutant(tree, "min", "max(", "min(")
    _add_mutant(
        tree, "swapped", "(left, right)\n", "(right, left)\n", "equivalent = 'The order of arguments is free.'\n"
    )
    _add_mutant(tree, "sum", "max(left, right)", "left * 0 + right")
    _add_mutant(tree, "stale", "median(", "mean(")
    ran = _mutants("--root", tree, "--jobs", 1)
    assert ran.returncode == 1, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [
        "1 caught, 1 survived, 1 equivalent, 1 does not apply, of 4",
        "caught          min: tests/test_numbers.py::test_the_larger_number_is_returned",
        "does not apply  stale: its `old` text occurs 0 times in tests/numbers_of.py instead of once",
        "equivalent      swapped: The order of arguments is free.",
        "survived        sum: The larger number is returned.",
    ]
    assert (tree / "tests" / "numbers_of.py").read_text() == SOURCE


def test_all_bugs_caught_is_a_success_and_words_select_bugs(tree: Path) -> None:
    _add_mutant(tree, "min", "max(", "min(")
    _add_mutant(tree, "sum", "max(left, right)", "left * 0 + right")
    ran = _mutants("--root", tree, "--jobs", 1, "-k", "min")
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "1 caught, 0 survived, of 1")


def test_tests_that_fail_without_a_bug_prove_nothing(tree: Path) -> None:
    (tree / "tests" / "test_numbers.py").write_text(TEST.replace("== 2", "== 3"))
    _add_mutant(tree, "min", "max(", "min(")
    ran = _mutants("--root", tree, "--jobs", 1)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "fail without a planted bug" in ran.stderr


def test_every_planted_bug_of_the_tree_can_be_planted() -> None:
    checked = _mutants("--check")
    assert (checked.returncode, checked.stdout) == (0, ""), checked.stderr
