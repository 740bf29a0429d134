"""Measure what it costs one controller process to look after 200 idle instances: processor time and memory.

The server runs on SQLite. Each instance has ten members, and is looked at every ten seconds. The app reports the same
at each look, so nothing is sent but the renewal of the stewardships."""

import datetime
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import records, steward_app
from bench.api import cpu_s
from bench.platform_parts import INSTANCE_ROWS, MEMBER_ROWS
from bench.sides import Side
from bench.watchers import resident_kb

INSTANCES = 200
WARM_S, MEASURED_S = 30, 60
_PORT = 7177


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
            _measure(side, server.pid, folder)


def _measure(side: Side, server_pid: int, folder: Path) -> None:
    command = [sys.executable, "-m", "bench.steward_app", "run", "--server", f"http://127.0.0.1:{_PORT}"]
    command += ["--project", side.project_id, "--credentials", str(folder / "key.json")]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as controller:
        try:
            time.sleep(WARM_S)
            before_s, server_before_s, started_s = cpu_s(controller.pid), cpu_s(server_pid), time.monotonic()
            time.sleep(MEASURED_S)
            took_s = time.monotonic() - started_s
            share = (cpu_s(controller.pid) - before_s) / took_s
            server_share = (cpu_s(server_pid) - server_before_s) / took_s
            looked = _looked(side)
            print(f"{INSTANCES} idle instances, a look each {steward_app.EVERY_S:g} s, in one controller process:")
            print(f"  controller: {share:.2%} of a core, {resident_kb(controller.pid) / 1024:.0f} MB")
            print(f"  server:     {server_share:.2%} of a core")
            print(f"  looked at within the last 25 s: {looked} of {INSTANCES}", flush=True)
        finally:
            controller.terminate()


def _looked(side: Side) -> int:
    """Return how many instances were looked at recently: a controller that does nothing is cheap, too."""
    now, shown = time.time(), side.send("GET", "/app-instances", page_size=500)["items"]
    stewards = [instance["steward"] for instance in shown if instance["steward"]]
    return sum(now - _seconds(steward["observed_at"]) < 25 for steward in stewards if steward["observed_at"])


def _seconds(moment: str) -> float:
    return datetime.datetime.fromisoformat(moment).timestamp()
