"""Measure what it costs one controller process to look after 200 idle instances: processor time and memory.

The server runs on SQLite. Each instance has ten members, and is looked at every ten seconds. The app reports the same
at each look, so nothing is sent but the renewal of the stewardships. `clusters` measures an app with machines. The exit
status is 1 if the controller costs more than the aims allow."""

import contextlib
import datetime
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench import aims, records, steward_app
from bench.api import cpu_s
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS
from bench.sides import Side
from bench.watchers import resident_kb

INSTANCES = 200
WARM_S, MEASURED_S = 30.0, 60.0
LOOKED_WITHIN_S = 180.0
"""How long the first look at every instance may take altogether."""
CORE_PERCENT_MAX = 2.0
MEMORY_MB_MAX = 150.0
"""What one controller process may cost at most, of a core and of memory, while it looks after `INSTANCES`."""
_PORT = 7177


class Cost(NamedTuple):
    """What the controller process costs."""

    core_percent: float
    memory_mb: float


def run() -> None:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as name:
        folder = Path(name)
        side = Side(INSTANCES, folder / "data", "", _PORT)
        with side.serve():
            side.make_project()
            side.register_app(records.APP)
            (folder / "key.json").write_text(json.dumps(side.new_key()))
        of_project = (side.org_id, side.project_id)
        side.insert(INSTANCE_ROWS, lambda: records.instances(*of_project, INSTANCES))
        side.insert(MEMBER_ROWS, lambda: records.members(*of_project, INSTANCES))
        server = side.serve()
        with server:
            print(f"{INSTANCES} idle instances, a look each {steward_app.EVERY_S:g} s, in one controller process:")
            program = [sys.executable, "-m", "bench.steward_app"]
            with measured(side, server.pid, controller_command(program, side, folder), folder) as cost:
                pass
    show(cost)


def show(cost: Cost) -> None:
    """Print whether the aims for `INSTANCES` are met. End with exit status 1 if not."""
    aims.show(
        [
            aims.Aim("processor time of the controller", cost.core_percent, CORE_PERCENT_MAX, " % of a core"),
            aims.Aim("memory of the controller", cost.memory_mb, MEMORY_MB_MAX, " MB"),
        ]
    )


def controller_command(program: list[str], side: Side, folder: Path) -> list[str]:
    """Return the command that runs the controller of an app for the project."""
    options = ["--server", f"http://127.0.0.1:{side.port}", "--project", side.project_id]
    return [*program, "run", *options, "--credentials", str(folder / "key.json")]


@contextlib.contextmanager
def measured(
    side: Side, server_pid: int, command: list[str], folder: Path, seconds: float = MEASURED_S
) -> Iterator[Cost]:
    """Start the controller, wait until it looked at every instance, and print what it costs from then on. It runs
    until the `with` block ends."""
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as controller:
        try:
            _wait_for_looks(side)
            time.sleep(WARM_S)
            before_s, server_before_s, started_s = cpu_s(controller.pid), cpu_s(server_pid), time.monotonic()
            time.sleep(seconds)
            took_s = time.monotonic() - started_s
            share = (cpu_s(controller.pid) - before_s) / took_s
            server_share = (cpu_s(server_pid) - server_before_s) / took_s
            cost = Cost(share * 100, resident_kb(controller.pid) / 1024)
            print(f"  controller: {share:.2%} of a core, {cost.memory_mb:.0f} MB")
            print(f"  server:     {server_share:.2%} of a core")
            print(f"  looked at within the last 25 s: {_looked(side)} of {side.size}", flush=True)
            yield cost
        finally:
            controller.terminate()


def _wait_for_looks(side: Side) -> None:
    deadline_s = time.monotonic() + LOOKED_WITHIN_S
    while (looked := _looked(side)) < side.size:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"bench: only {looked} of {side.size} instances were looked at")
        time.sleep(1)


def _looked(side: Side) -> int:
    """Return how many instances were looked at recently: a controller that does nothing is cheap, too."""
    now, shown = time.time(), side.send("GET", "/app-instances", page_size=500)["items"]
    stewards = [instance["steward"] for instance in shown if instance["steward"]]
    return sum(now - _seconds(steward["observed_at"]) < 25 for steward in stewards if steward["observed_at"])


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
