"""Two releases that run at the same time on one host: this source tree, and an earlier commit of its history.

The earlier release has a folder of its own, and the packages of this environment. A release that needs other versions
of packages than the one before it needs an environment for each; change this module then."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from server_process import Cloud

ROOT = Path(__file__).parents[2]
PREVIOUS = "65baaf32c538ad016fcedb152e77711491c12276"
"""The release before this one. A release moves it to the commit of the release that it replaces."""
PARTS = ("contract", "sdk", "platform", "agent", "apps/slurm", "cli")
_GIT = ["git", "-c", "safe.directory=*", "-C", str(ROOT)]
"""With `sudo make test`, the clone belongs to another user than the tests."""


@dataclass(frozen=True)
class Release:
    name: str
    root: Path
    bytecode: str

    def python(self, *arguments: str) -> list[str]:
        """Return the command that runs Python with the parts of this release."""
        folders = os.pathsep.join(str(self.root / part) for part in PARTS)
        # PYTHONPATH comes before the folders of the environment, which are those of this source tree.
        return ["env", f"PYTHONPATH={folders}", f"PYTHONPYCACHEPREFIX={self.bytecode}", sys.executable, *arguments]

    @property
    def platform(self) -> list[str]:
        return self.python("-m", "gpuaas_platform.main")

    def gpuaas(self, server: str, cloud: Cloud, *words: str) -> str:
        """Run the command `gpuaas` of this release in the project and return its output; it must succeed."""
        given = {"SERVER": server, "TOKEN": cloud.token, "PROJECT": cloud.project_id, "HOME": str(self.root)}
        settings = [f"GPUAAS_{name}={value}" for name, value in given.items()]
        command = ["env", *settings, *self.python("-c", "from gpuaas_cli import main; main.main()", *words)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


THIS = Release("this", ROOT, os.environ.get("PYTHONPYCACHEPREFIX", ""))


def why_missing() -> str:
    """Return why the earlier release cannot be unpacked; empty if it can."""
    try:
        asked = subprocess.run([*_GIT, "cat-file", "-e", f"{PREVIOUS}^{{commit}}"], capture_output=True, check=False)
    except FileNotFoundError:
        return "the release before this one is in the history of the clone, and git is not installed"
    return "" if asked.returncode == 0 else f"this clone does not have the commit {PREVIOUS[:7]}: git fetch --unshallow"


def unpack(folder: Path) -> Release:
    archive = subprocess.run([*_GIT, "archive", PREVIOUS, *PARTS], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return Release("previous", folder, str(folder / "bytecode"))
