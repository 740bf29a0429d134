"""The built agent as a separate process, for tests."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gpuaas_agent import build


class AgentProcess:
    """The .pyz with its own configuration and state; a test may start it several times."""

    def __init__(self, directory: Path, server: str, token: str, ca_sha256: str = "") -> None:
        self.archive, self.state, self.config = directory / "agent.pyz", directory / "state", directory / "agent.json"
        self.log = directory / "agent.log"
        build.build(self.archive)
        self.config.write_text(json.dumps({"server": server, "ca_sha256": ca_sha256, "token": token, "name": "gpu-1"}))
        self.config.chmod(0o600)

    @contextlib.contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        argv = [sys.executable, str(self.archive), "--config", str(self.config), "--state", str(self.state)]
        with self.log.open("ab") as log, subprocess.Popen(argv, stderr=log, stdin=subprocess.DEVNULL) as process:
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]
