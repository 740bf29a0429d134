"""A cloud whose machines have no package source, and an app on it by the commands of its pages."""

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine_state
from cloud_in_use import Cloud

BUNDLES = Path(os.environ.get("GPUAAS_LAB_STATE", "/var/lib/gpuaas/lab")) / "bundles"
"""Bundles are made once and kept: that needs a network, and takes minutes."""
BLOCK = re.compile(r"(?:^    .+\n)+", re.MULTILINE)
PLACED = re.compile(r"file /var/lib/gpuaas(/artifacts\S*)?: ")
"""The platform keeps the folder of placed files until the allocation is released."""
NO_SOURCE = "umount /srv/packages; rm -f /etc/apt/sources.list; rm -rf /var/lib/apt/lists/*"


@dataclass
class AppCloud(Cloud):
    app: str
    nodes: tuple[str, ...]

    def start(self) -> None:
        """Start what is missing: everything, or the controller that was killed."""
        words = ("--app", self.app, "--lab", self.lab_name, "--port", self.port)
        self.gpuaas("up", *words, "--nodes", str(len(self.nodes)), "--no-deploy", timeout_s=1200)

    def act(self, *words: str) -> Any:
        """Run an action of the instance, which has the name of the app, and return its result."""
        done = self.gpuaas("action", "run", self.app, *words, "-o", "json")
        return json.loads(done.stdout)["result"]

    def publish(self, page: Path, changed: Mapping[str, str] | None = None) -> str:
        """Make a bundle if there is none, publish it by the commands of the page, and return the version. `changed`:
        what another version has in the place of words of the page."""
        folder = BUNDLES / self.app
        folder.mkdir(parents=True, exist_ok=True)
        key, per_version = (block.split("\n") for block in BLOCK.findall(page.read_text())[:2])
        if (folder / "signing.pem").exists():
            key = [line for line in key if "genpkey" not in line]
        known = self.gpuaas("artifact", "trust", "list", "-o", "json", check=False).stdout
        lines = [line.strip() for line in ([] if f"{self.app}-" in known else key) + per_version]
        for old, new in (changed or {}).items():
            lines = [line.replace(old, new) for line in lines]
        lines = [line for line in lines if "bundle make" not in line or not _is_made(folder, line)]
        script = "\n".join(["set -e", *lines])
        done = subprocess.run(
            ["bash", "-c", script], cwd=folder, env=self.environment(), capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        return str(json.loads((folder / "version.json").read_text())["version"])

    def captured(self) -> dict[str, Any]:
        return {node: machine_state.capture(self.lab_name, node) for node in self.nodes}

    def traces(self, before: Mapping[str, Any]) -> list[str]:
        """Return what differs from before on any machine."""
        rows = [(node, row) for node in self.nodes for row in machine_state.traces(self.lab_name, node, before[node])]
        return [f"{node} {row}" for node, row in rows if not PLACED.match(row)]


@contextmanager
def app_cloud(app: str, lab: str, port: str, nodes: tuple[str, ...]) -> Iterator[AppCloud]:
    with tempfile.TemporaryDirectory(prefix=f"gpuaas-{app}-") as folder:
        cloud = AppCloud(Path(folder), lab, port, app, nodes)
        cloud.gpuaas("lab", "down", "--lab", lab, "--purge")
        try:
            cloud.start()
            for node in nodes:
                cloud.on(node, NO_SOURCE)
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", lab, "--purge")


def until(is_true: Callable[[], bool], within_s: float = 120.0) -> None:
    ends_at = time.monotonic() + within_s
    while not is_true():
        assert time.monotonic() < ends_at
        time.sleep(0.2)


def _is_made(folder: Path, line: str) -> bool:
    [file] = re.findall(r"--out (\S+)", line)
    return (folder / f"{file}.dsse").exists()
