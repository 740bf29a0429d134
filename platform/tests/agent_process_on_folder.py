"""A node's agent as a process of its own, with a folder in place of its host."""

import collections
import json
import subprocess
import sys
from pathlib import Path

import folder_agent


class AgentProcess:
    """A node's agent, to be killed and started again as systemd would."""

    def __init__(self, folder: Path, server: str, name: str, token: str) -> None:
        self.folder = folder
        (folder / "users").mkdir(parents=True)
        (folder / "runs").touch()
        config = folder / "agent.json"
        config.write_text(json.dumps({"server": server, "token": token, "name": name}))
        config.chmod(0o600)
        files = ["--config", str(config), "--state", str(folder / "state")]
        self._argv = [sys.executable, folder_agent.__file__, str(folder), *files]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._argv, stdin=subprocess.DEVNULL, stderr=log)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def runs(self) -> collections.Counter[tuple[str, str]]:
        """How often a handler began for each (task, process)."""
        lines = [line.rsplit(" ", 1) for line in (self.folder / "runs").read_text().splitlines()]
        return collections.Counter((task, process) for task, process in lines)

    def artifacts(self) -> list[Path]:
        """Every file of its host's artifacts, finished or not."""
        return [path for path in (self.folder / "lib").rglob("*") if path.is_file()]
