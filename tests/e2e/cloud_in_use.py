"""`gpuaas up` with a deployed cluster, in a private home: the command line of people, and scripts on machines."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client

BIN = Path(sys.executable).parent


@dataclass
class Cloud:
    home: Path
    lab_name: str
    port: str

    def environment(self, home: Path | None = None) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
        path = f"{BIN}:{os.environ['PATH']}"
        return {**kept, "PATH": path, "GPUAAS_HOME": str(home or self.home), "NO_COLOR": "1"}

    def gpuaas(
        self, *words: str, check: bool = True, timeout_s: float = 1800, home: Path | None = None, given: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the command line as the admin, or as the person who is signed in at `home`."""
        done = subprocess.run(
            [BIN / "gpuaas", *words],
            env=self.environment(home),
            input=given,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check:
            assert done.returncode == 0, f"gpuaas {' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def up(self, nodes: int) -> None:
        self.gpuaas("up", "--lab", self.lab_name, "--port", self.port, "--nodes", str(nodes), timeout_s=1200)

    def on(self, node: str, script: str, *, check: bool = True) -> str:
        """Run a script as root on a machine."""
        words = ("lab", "exec", node, "--lab", self.lab_name, "--", "bash", "-c", script)
        return self.gpuaas(*words, check=check).stdout

    def action(self, name: str, **inputs: str) -> Mapping[str, Any]:
        """Run an action of the cluster and return its result."""
        pairs = [word for key, value in inputs.items() for word in ("--input", f"{key}={value}")]
        done = self.gpuaas("action", "run", "slurm", name, *pairs, "-o", "json")
        return dict(json.loads(done.stdout)["result"])

    def listed(self, *words: str) -> list[dict[str, Any]]:
        """Return what `gpuaas get` lists."""
        answer = json.loads(self.gpuaas("get", *words, "-o", "json").stdout)
        items: list[dict[str, Any]] = answer["items"] if isinstance(answer, dict) else answer
        return items

    @property
    def project_id(self) -> str:
        return str(self._context["project_id"])

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        async with Client(self._context["server"], BearerToken(self._context["token"])) as client:
            yield client

    @property
    def _context(self) -> Mapping[str, str]:
        config = json.loads((self.home / "config.json").read_text())
        return dict(config["contexts"][config["current"]])
