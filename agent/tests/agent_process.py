"""The built agent as a separate process, for tests."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuaas_agent import build


class AgentProcess:
    """The .pyz with its own configuration and state; a test may start it several times."""

    def __init__(
        self, directory: Path, server: str, token: str, ca_sha256: str = "", release_keys: Sequence[str] = ()
    ) -> None:
        self.archive, self.state, self.config = directory / "agent.pyz", directory / "state", directory / "agent.json"
        self.log = directory / "agent.log"
        build.build(self.archive)
        settings = {"server": server, "ca_sha256": ca_sha256, "token": token, "name": "gpu-1"}
        self.config.write_text(json.dumps({**settings, "release_keys": list(release_keys)}))
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

    def pin(self, key_file: Path) -> None:
        """Pin a release key, as an operator does on the machine."""
        argv = [sys.executable, str(self.archive), "--config", str(self.config), "pin-release-key", str(key_file)]
        subprocess.run(argv, check=True, capture_output=True)

    def events(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]
