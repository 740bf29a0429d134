"""A new app from the scaffold: its files, its size, and that it works as it is."""

import importlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gpuaas_sdk import conformance, scaffold
from gpuaas_sdk.conformance import Subject
from gpuaas_sdk.controller import App, Temporary
from gpuaas_sdk.machine import Machine, Ran
from gpuaas_sdk.testing import FakeHost

SHORT_CHECKS = ("operations", "residue", "runbook", "lifecycle")


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_every_kind_has_a_manifest_and_all_files(kind: str, tmp_path: Path) -> None:
    made = scaffold.create("my-app", kind, tmp_path / "my-app")
    assert all(path.is_file() for path in made)
    package = tmp_path / "my-app" / "gpuaas_app_my_app"
    manifest = App("my-app", manifest=package / "manifest.yaml").manifest
    assert manifest.display_name == "My app"
    assert set(manifest.topologies["default"]) == {role.component_key for role in manifest.roles}
    assert {path.name for path in package.iterdir()} >= {"controller.py", "plan.py", "workload.py", "my-app.service"}


@pytest.mark.parametrize("kind", scaffold.KINDS)
def test_the_controller_has_fewer_than_150_lines(kind: str, tmp_path: Path) -> None:
    scaffold.create("hello", kind, tmp_path / "hello")
    lines = (tmp_path / "hello" / "gpuaas_app_hello" / "controller.py").read_text().splitlines()
    assert len(lines) < 150


@pytest.mark.parametrize("name", ["", "Hello", "9lives", "a--b", "hello_world", "a" * 41])
def test_a_bad_name_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(scaffold.CannotCreate, match="is no name of an app"):
        scaffold.create(name, "service", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_an_unknown_kind_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(scaffold.CannotCreate, match="service, batch, quorum"):
        scaffold.create("hello", "web", tmp_path / "new")


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "hello").mkdir()
    with pytest.raises(scaffold.CannotCreate, match="exists already"):
        scaffold.create("hello", "service", tmp_path / "hello")


def test_a_link_to_nothing_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "hello").symlink_to(tmp_path / "missing")
    with pytest.raises(scaffold.CannotCreate, match="exists already"):
        scaffold.create("hello", "service", tmp_path / "hello")


@pytest.mark.parametrize("name", ["null", "on", "ssh"])
def test_an_app_with_the_name_of_something_else_is_a_sound_app(name: str, tmp_path: Path) -> None:
    """Its manifest is text, and what it removes from machines belongs to no package."""
    scaffold.create(name, "service", tmp_path / name)
    package = tmp_path / name / f"gpuaas_app_{name}"
    assert App(name, manifest=package / "manifest.yaml").manifest.slug == name
    workload = (package / "workload.py").read_text()
    assert f'"{name}.service"' not in workload.replace(f'here / "{name}.service"', "")
    assert f"/var/lib/{name}" not in workload


@pytest.mark.parametrize("kind", ["batch", "quorum"])
def test_the_other_kinds_work_as_they_are(kind: str, tmp_path: Path) -> None:
    home = tmp_path / "hello"
    scaffold.create("hello", kind, home)
    checks = [word for check in SHORT_CHECKS for word in ("--check", check)]
    command = [sys.executable, "-m", "gpuaas_app_hello.conformance", *checks, "--junit", "card.xml"]
    ran = subprocess.run(command, cwd=home, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "hello 1.1.0 conforms: 4 passed, 0 failed, 0 not applicable" in ran.stdout
    assert (home / "card.xml").is_file()


@pytest.mark.parametrize(
    ("ran", "works"),
    [
        (Ran(0, "job-1\njob-2\n", ""), ["job-1", "job-2"]),
        (Ran(2, "", "ls: cannot access '/var/lib/gpuaas-work-hello/work': No such file or directory\n"), []),
    ],
)
async def test_a_machine_on_which_the_app_was_never_installed_has_no_work(
    ran: Ran, works: list[str], home: Path
) -> None:
    workload = importlib.import_module("gpuaas_app_hello.workload")
    assert await workload.work(Machine(FakeHost("n1", lambda argv: ran))) == works


async def test_a_look_that_fails_is_no_evidence_that_there_is_no_work(home: Path) -> None:
    workload = importlib.import_module("gpuaas_app_hello.workload")
    broken = Ran(2, "", "ls: reading directory '/var/lib/gpuaas-work-hello/work': Input/output error\n")
    with pytest.raises(Temporary, match=r"cannot list the work on n1: ls: reading directory .* Input/output error"):
        await workload.evidence(Machine(FakeHost("n1", lambda argv: broken)))


async def test_a_member_that_is_left_on_a_silent_machine_is_not_shown_as_removed(
    planted: Callable[..., Subject],
) -> None:
    card = await conformance.run(planted(), only=["node-lost"], kinds={"deploy", "add", "remove"})
    assert [(verdict.result, verdict.reason) for verdict in card.verdicts] == [("passed", "")]


def test_the_tests_of_the_new_app_pass(tmp_path: Path) -> None:
    scaffold.create("hello", "batch", tmp_path / "hello")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_plan.py"]
    ran = subprocess.run(command, cwd=tmp_path / "hello", capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


def test_the_new_app_is_a_wheel_with_its_data_files(tmp_path: Path) -> None:
    scaffold.create("hello", "service", tmp_path / "hello")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path / "hello", capture_output=True, check=True)
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(next(tmp_path.glob("*.whl")))],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "gpuaas_app_hello/manifest.yaml" in names
    assert "gpuaas_app_hello/hello.service" in names
