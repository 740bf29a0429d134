"""Own packages in the lab: the commands of the page "Use the lab", typed as they are printed."""

from pathlib import Path

import pytest
import transcripts
from guide_folder import Folder
from local_cloud import empty_cloud

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "use-the-lab.md").read_text()
COMMANDS = transcripts.commands_of(PAGE)
LAB, PORT = "guidelab", 7365


@pytest.mark.machines
@pytest.mark.long
def test_a_machine_of_the_lab_installs_a_package_that_its_user_named(tmp_path: Path) -> None:
    with empty_cloud(LAB, PORT) as cloud:
        folder = Folder(tmp_path, cloud)
        for command in COMMANDS:
            folder.run(command)


def test_the_page_installs_a_package() -> None:
    assert any("apt-get -qq install" in command.line for command in COMMANDS)
