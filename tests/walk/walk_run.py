"""Record one `gpuaas member add`: the command, the server and the controller of the Slurm app, each a process."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import recorder
import walk_cloud
from gpuaas_sdk.testing import free_port

ROOT = recorder.ROOT
COMMAND = ["member", "add", walk_cloud.INSTANCE, "--role", "worker", "--allocation", "gpu-4"]
OTHER_COMMAND = ["org", "create", "other", "--admin", "admin"]
"""Shows what every command crosses."""
_DEADLINE_S = 120
_HELPERS = [ROOT / "tests" / "walk"]


@dataclass(frozen=True)
class Recording:
    """Files in the order of their first call."""

    command: list[recorder.Entry]
    server: list[recorder.Entry]
    controller: list[recorder.Entry]
    every_command: frozenset[str]
    """Files that another command crosses too."""


def record(folder: Path) -> Recording:
    url = f"http://127.0.0.1:{free_port()}"
    data = ["--data", str(folder / "data")]
    admin = [sys.executable, "-m", "gpuaas_platform.main", "admin", *data]
    password = subprocess.run(admin, capture_output=True, text=True, check=True).stdout.strip()
    listen = ["--listen", url.removeprefix("http://")]
    with _recorded(folder / "server", "gpuaas_platform.main", "server", *data, *listen) as server:
        _until(lambda: _read(f"{url}/readyz") != "", "the server answers")
        cloud = asyncio.run(walk_cloud.Cloud.make(url, password))
        key = folder / "key.json"
        key.write_text(json.dumps({"key_id": cloud.key.key_id, "client_secret": cloud.key.client_secret}))
        server.send_signal(signal.SIGUSR1)
        other = _run(folder / "other", cloud, OTHER_COMMAND)
        server.send_signal(signal.SIGUSR1)
        where = ["--server", url, "--project", cloud.project_id, "--credentials", str(key), "--name", "walk"]
        with _recorded(folder / "controller", "slurm_controller", "run", *where) as controller:
            _until(lambda: "gpuaas_long_polls_waiting 1.0" in _read(f"{url}/metrics"), "the controller waits for work")
            controller.send_signal(signal.SIGUSR1)
            server.send_signal(signal.SIGUSR1)
            command = _run(folder / "command", cloud, COMMAND)
    servers, controllers = _phases(folder / "server"), _phases(folder / "controller")
    return Recording(
        command=command,
        server=servers[3],
        controller=controllers[1],
        every_command=frozenset(file for _, _, file in [*other, *servers[1]]),
    )


def _run(name: Path, cloud: walk_cloud.Cloud, words: list[str]) -> list[recorder.Entry]:
    environment = {
        **_environment(),
        "GPUAAS_HOME": str(name.with_name("home")),
        "GPUAAS_SERVER": cloud.server,
        "GPUAAS_TOKEN": cloud.token,
        "GPUAAS_PROJECT": cloud.project_id,
    }
    subprocess.run(_argv(name, "gpuaas_cli.main", *words), env=environment, timeout=_DEADLINE_S, check=True)
    return _phases(name)[0]


@contextlib.contextmanager
def _recorded(name: Path, module: str, *arguments: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A process in the background that writes its recording when the context ends."""
    with name.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(_argv(name, module, *arguments), env=_environment(), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.terminate()
            process.wait(_DEADLINE_S)


def _argv(name: Path, module: str, *arguments: str) -> list[str]:
    return [sys.executable, recorder.__file__, str(name.with_suffix(".json")), module, *arguments]


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUAAS_")}
    folders = [*map(str, _HELPERS), kept.get("PYTHONPATH", "")]
    return {**kept, "PYTHONPATH": os.pathsep.join(folder for folder in folders if folder)}


def _phases(name: Path) -> list[list[recorder.Entry]]:
    phases = json.loads(name.with_suffix(".json").read_text())
    return [[(at, actor, file) for at, actor, file in phase] for phase in phases]


def _until(condition: Callable[[], bool], what: str) -> None:
    ends_at = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_at, f"not within {_DEADLINE_S} s: {what}"
        time.sleep(0.05)


def _read(url: str) -> str:
    """The text at this address; empty while there is no answer."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return str(answer.read().decode())
    except urllib.error.URLError:
        return ""
