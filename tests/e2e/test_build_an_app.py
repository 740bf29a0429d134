"""The page "Build an app", typed as it is printed from an empty folder: every command succeeds and prints what the page
promises. The part that needs no machines runs on its own too."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import transcripts
from guide_folder import Folder
from local_cloud import LocalCloud, empty_cloud

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "build-an-app.md").read_text()
COMMANDS = transcripts.commands_of(PAGE)
LAB, PORT = "guide", 7361
ATTEMPTS = {"gpuaas get members": 120, "gpuaas op follow": 5}
"""The page has the reader repeat the first one. The second one is repeated if the server is too busy to answer."""
FIRST_WITH_MACHINES = "gpuaas up"


def type_all(folder: Folder, commands: list[transcripts.Command]) -> None:
    folder.make_environment()
    files = transcripts.files_of(PAGE)
    for command in commands:
        folder.write({name: content for name, content in files.items() if name in command.line})
        attempts = [count for start, count in ATTEMPTS.items() if command.line.startswith(start)]
        folder.run(command, attempts=attempts[0] if attempts else 1)


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    with empty_cloud(LAB, PORT) as cloud:
        yield cloud


@pytest.mark.machines
@pytest.mark.long
def test_every_command_from_an_empty_folder_to_a_green_score_card(cloud: LocalCloud, tmp_path: Path) -> None:
    with stopped_at_the_end(tmp_path / "controller.pid"):
        type_all(Folder(tmp_path, cloud), COMMANDS)
    assert "conformance.xml" in {path.name for path in tmp_path.iterdir()}


@pytest.mark.long
def test_the_commands_before_the_machines_need_no_root_and_no_cloud(tmp_path: Path) -> None:
    lines = [command.line for command in COMMANDS]
    first = next(number for number, line in enumerate(lines) if line.startswith(FIRST_WITH_MACHINES))
    type_all(Folder(tmp_path, LocalCloud(tmp_path / "home", LAB, PORT)), COMMANDS[:first])


def test_the_page_has_each_part_in_this_order() -> None:
    parts = (
        "gpuaas app init",
        "python -m pytest -q hello/tests/test_deploy.py",
        "gpuaas up",
        "gpuaas app register",
        "gpuaas app entitle",
        "gpuaas deploy",
        "kill -9",
        "gpuaas op follow",
        "gpuaas app conformance hello --junit",
        "gpuaas upgrade",
        "gpuaas decommission",
    )
    lines = [command.line for command in COMMANDS]
    places = [next(number for number, line in enumerate(lines) if line.startswith(part)) for part in parts]
    assert places == sorted(places)


def test_the_page_writes_the_files_that_its_commands_name() -> None:
    files = transcripts.files_of(PAGE)
    assert list(files) == ["hello/tests/test_deploy.py"]
    for name, content in files.items():
        compile(content, name, "exec")


@contextlib.contextmanager
def stopped_at_the_end(file: Path) -> Iterator[None]:
    """Stop the controller that the page starts in the background, if a command before its end failed."""
    try:
        yield
    finally:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
