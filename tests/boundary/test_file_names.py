"""pytest collects every test of the project in one run, where two modules of the same name exclude each other."""

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_test_modules_have_the_same_name() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    modules = [module for folder in options["testpaths"] for module in (ROOT / folder).rglob("test_*.py")]
    names = Counter(module.name for module in modules)
    assert len(modules) > 100
    assert [name for name, count in names.items() if count > 1] == []
