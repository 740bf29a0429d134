"""The script of the how-to page that enters real machines with an HTTP client and `ssh`, and no code of GPUaaS."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cloud import LocalCloud, empty_cloud

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
LAB, PORT = "guidehttp", 7363
NODES = 2


@pytest.mark.machines
@pytest.mark.long
def test_a_controller_in_plain_http_enters_machines_as_root(tmp_path: Path) -> None:
    with empty_cloud(LAB, PORT) as cloud:
        cloud.up(NODES)
        cloud.gpuaas("app", "register", str(HOW_TO / "tiny_app.json"))
        cloud.gpuaas("app", "publish", "tiny", "1.0.0")
        cloud.gpuaas("app", "entitle", "tiny")
        cloud.gpuaas("service-account", "create", "tiny", "--app", "tiny", "--key-file", str(tmp_path / "key.json"))
        inputs = ("--set", "head_allocation=gpu-1", "--set", "hand_allocations=gpu-2")
        with running(cloud, "tiny_controller.py", tmp_path):
            cloud.gpuaas("deploy", "tiny", "--topology", "star", *inputs)
        with running(cloud, "tiny_machine.py", tmp_path):
            printed = cloud.gpuaas("action", "run", "tiny", "list-work").stdout
        grants = cloud.gpuaas("get", "machine-grants", "-a", "-o", "json").stdout
    assert [f"{node}: root sees " in printed for node in ("gpu-1", "gpu-2")] == [True, True], printed
    assert grants.count('"access": "root"') >= NODES


@contextlib.contextmanager
def running(cloud: LocalCloud, script: str, folder: Path) -> Iterator[None]:
    command = [sys.executable, str(HOW_TO / script), "--url", f"http://127.0.0.1:{cloud.port}", "--project", "default"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen([*command, "--key-file", "key.json"], cwd=folder, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.kill()
        process.wait()
