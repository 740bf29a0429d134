"""Run the command `gpuaas-lab` in tests: each module has its own lab in the state folder that all labs share."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gpuaas_lab.snapshot import host_snapshot


@dataclass(frozen=True)
class LabTool:
    """The lab of one test module."""

    name: str

    def command(self, *arguments: str) -> list[str]:
        name, *rest = arguments
        return [sys.executable, "-m", "gpuaas_lab.main", name, "--lab", self.name, *rest]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(*arguments), capture_output=True, text=True, check=False)

    def do(self, *arguments: str) -> str:
        result = self.run(*arguments)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def on(self, machine: str, *argv: str) -> str:
        return self.do("exec", machine, "--", *argv)

    def status(self, column: str) -> dict[str, str]:
        return {entry["name"]: entry[column] for entry in json.loads(self.do("status", "-o", "json"))}

    def states(self) -> dict[str, str]:
        return self.status("state")

    @contextmanager
    def absent(self) -> Iterator[set[str]]:
        """Yield a snapshot of the host without this lab; remove the lab again at the end, also after a failure."""
        self.do("image")
        self.do("down", "--purge")
        try:
            yield host_snapshot(self.name)
        finally:
            self.do("down", "--purge")
