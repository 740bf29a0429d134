"""Measure what idle projects cost one controller process that serves them all: processor time, memory and requests.

The server runs on SQLite. The account belongs to the organisation, and every project accepts it. No project has an
instance: the process waits in each for operations, renews no stewardship, and reads the list of projects."""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench import records
from bench.api import cpu_s
from bench.sides import Side
from bench.watchers import resident_kb

PROJECTS = (1, 50)
WARM_S, MEASURED_S = 20.0, 60.0
SERVED_WITHIN_S = 120.0
_PORT = 7196


def run(options: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="bench projects", description=__doc__)
    parser.add_argument("--projects", type=int, nargs="+", default=list(PROJECTS), help="how many, one run for each")
    parser.add_argument("--seconds", type=float, default=MEASURED_S, help="of the measurement")
    chosen = parser.parse_args(options)
    for count in chosen.projects:
        with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as name:
            _measure(Path(name), count, chosen.seconds)


def _measure(folder: Path, count: int, seconds: float) -> None:
    side = Side(0, folder / "data", "", _PORT)
    server = side.serve()
    with server:
        side.make_project()
        side.register_app(records.APP)
        accounts = f"/orgs/{side.org_id}/service-accounts"
        account_id = side.post(accounts, name="fleet", apps=[records.APP])["service_account_id"]
        key = side.post(f"{accounts}/{account_id}/keys")
        login = {name: key[name] for name in ("key_id", "client_secret")}
        (folder / "key.json").write_text(json.dumps(login))
        for number in range(count):
            made = side.post(f"/orgs/{side.org_id}/projects", name=f"project-{number}")["project_id"]
            side.administer("PUT", f"/projects/{made}/entitlements/{records.APP}", {"enabled": True})
            side.administer("PUT", f"/projects/{made}/accepted-accounts/{account_id}", None)
        command = [sys.executable, "-m", "bench.steward_app", "run", "--server", f"http://127.0.0.1:{_PORT}"]
        command += ["--credentials", str(folder / "key.json")]
        with (folder / "log").open("w") as log, subprocess.Popen(command, stderr=log) as controller:
            try:
                _wait_until_served(folder / "log", count)
                time.sleep(WARM_S)
                before, started_s = (cpu_s(controller.pid), cpu_s(server.pid)), time.monotonic()
                time.sleep(seconds)
                took_s = time.monotonic() - started_s
                shares = [
                    (cpu_s(pid) - was) / took_s for pid, was in zip((controller.pid, server.pid), before, strict=True)
                ]
                print(f"{count} idle projects in one controller process, {seconds:g} s:")
                print(f"  controller: {shares[0]:.2%} of a core, {resident_kb(controller.pid) / 1024:.0f} MB")
                print(f"  server:     {shares[1]:.2%} of a core, {resident_kb(server.pid) / 1024:.0f} MB", flush=True)
            finally:
                controller.terminate()


def _wait_until_served(log: Path, count: int) -> None:
    deadline_s = time.monotonic() + SERVED_WITHIN_S
    while (served := log.read_text().count('"event": "project.entered"')) < count:
        if time.monotonic() > deadline_s:
            raise SystemExit(f"bench: only {served} of {count} projects are served")
        time.sleep(0.5)
