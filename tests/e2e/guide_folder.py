"""An empty folder, and an environment in which a reader of the guide installs an app: packages of the clone are there,
what is installed is not in the clone's environment, and no package index is asked."""

import os
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import transcripts
from local_cloud import LocalCloud

SHELL = """
set -e
gpuaas() {{
    case $1 in
        up) command gpuaas "$@" --lab {lab} --port {port} ;;
        down) command gpuaas "$@" --lab {lab} ;;
        lab) command gpuaas "$1" "$2" --lab {lab} "${{@:3}}" ;;
        *) command gpuaas "$@" ;;
    esac
}}
"""
"""The tests have a lab of their own beside the one of the person at this machine."""
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""pip reads 0 as: without isolation. Hatchling is in the clone's environment."""


@dataclass(frozen=True)
class Folder:
    """The folder in which the commands of a page are typed."""

    path: Path
    cloud: LocalCloud

    def make_environment(self) -> None:
        subprocess.run([sys.executable, "-m", "venv", self.path / "env"], check=True)
        paths = {"base": str(self.path / "env"), "platbase": str(self.path / "env")}
        packages = Path(sysconfig.get_path("purelib", "venv", paths))
        clone = sysconfig.get_path("purelib")
        (packages / "clone.pth").write_text(f"import site; site.addsitedir({clone!r})\n")

    def write(self, files: dict[str, str]) -> None:
        for name, content in files.items():
            (self.path / name).write_text(content)

    def run(self, command: transcripts.Command, *, attempts: int = 1) -> None:
        """Type the command, up to `attempts` times, until it succeeds and its output has what the page promises."""
        line = command.line.replace("127.0.0.1:7070", f"127.0.0.1:{self.cloud.port}")
        shell = SHELL.format(lab=self.cloud.name, port=self.cloud.port)
        for _ in range(attempts):
            ran = self._bash(f"{shell}\n{line}")
            missing = command.missing(ran.stdout)
            if ran.returncode == 0 and not missing:
                break
        shown = f"$ {line}\n{ran.stdout}"
        assert ran.returncode == 0, shown
        assert not missing, f"the output lacks {missing!r}:\n{shown}"

    def _bash(self, text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", text],
            cwd=self.path,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        base = self.cloud.environment()
        return {**base, **OFFLINE, "PATH": f"{self.path / 'env' / 'bin'}{os.pathsep}{base['PATH']}"}
