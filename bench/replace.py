"""Measure how long a worker is missed whose power is cut: from the cut to the first job on the machine in its place.

Each round cuts the power of a worker, waits until the platform shows that it failed, requests the replace by force, and
reads the times that the platform recorded. The machine that was replaced is started again and is the spare of the next
round: it then has the packages of Slurm, and is not a part of the cluster. The first spare does not have them, so a
round that does not count comes first. Needs root: python -m bench replace"""

import argparse
import datetime
import json
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.slurm_machines import gpuaas, lab

ROUNDS = 20
LIMIT_S = 30.0
HEAD, WORKERS, SPARE = "gpu-1", ("gpu-2", "gpu-3"), "gpu-4"
INSTANCE = "bench"
BROUGHT_UP = "bring up the new machine"


class Round(NamedTuple):
    """Seconds from the power cut."""

    noticed_s: float
    """The platform shows the member as failed."""
    requested_s: float
    claimed_s: float
    first_job_s: float
    """The new machine has joined, and its first job has ended."""
    done_s: float


def run(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench replace", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--lab", default="bench")
    parser.add_argument("--port", type=int, default=7191)
    parser.add_argument("--log", type=Path, metavar="FILE", help="write the steps and log lines of each replace to it")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit("bench: the replace benchmark starts machines, which needs root")
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as home:
        gpuaas(home, "down", "--lab", options.lab, "--purge")
        try:
            _show(_measured(home, options.lab, options.port, options.rounds, options.log))
        finally:
            gpuaas(home, "down", "--lab", options.lab, "--purge")


def _measured(home: str, name: str, port: int, rounds: int, log: Path | None) -> list[Round]:
    gpuaas(home, "up", "--lab", name, "--port", str(port), "--nodes", "4", "--no-deploy")
    settings = ["cluster_name=bench", f"controller_allocation_id={HEAD}", f"worker_allocation_ids={','.join(WORKERS)}"]
    flags = [argument for setting in settings for argument in ("--set", setting)]
    gpuaas(home, "deploy", "slurm", "--name", INSTANCE, "--topology", "split", *flags)
    old, spare, measured = WORKERS[0], SPARE, list[Round]()
    for number in range(rounds + 1):
        measured.append(_round(home, name, old, spare))
        if log is not None:
            _write_log(home, spare, number, log)
        parts = ", ".join(f"{part.removesuffix('_s')} {value:.1f}" for part, value in measured[-1]._asdict().items())
        what = f"round {number}" if number else "with the installation of the packages"
        print(f"{what}: {old} -> {spare}: {parts}", flush=True)
        _make_spare(name, old)
        old, spare = spare, old
    return measured[1:]


def _round(home: str, name: str, old: str, spare: str) -> Round:
    cut_at = datetime.datetime.now(datetime.UTC)
    lab(name, "kill", old)
    while (member := _member(home, old))["status"] == "ready":
        time.sleep(0.2)
    noticed_at = datetime.datetime.now(datetime.UTC)
    gpuaas(home, "member", "replace", INSTANCE, old, "--with", spare, "--force", "--reason", "power cut")
    operation_id = _member(home, spare)["last_operation_id"]
    operation = json.loads(gpuaas(home, "get", "operation", operation_id, "-o", "json"))
    if (_member(home, spare)["member_id"], operation["status"]) != (member["member_id"], "succeeded"):
        raise SystemExit(f"bench: the replace of {old} by {spare} ended with {operation['status']}")
    first_job = next(step for step in operation["steps"] if step["name"] == BROUGHT_UP)
    moments = [operation["created_at"], operation["started_at"], first_job["ended_at"], operation["ended_at"]]
    times = [noticed_at, *(datetime.datetime.fromisoformat(moment) for moment in moments)]
    return Round(*((moment - cut_at).total_seconds() for moment in times))


def _member(home: str, node_name: str) -> Any:
    listed = json.loads(gpuaas(home, "get", "members", INSTANCE, "-o", "json"))
    return next(member for member in listed["items"] if member["node_name"] == node_name)


def _write_log(home: str, node_name: str, number: int, log: Path) -> None:
    operation_id = _member(home, node_name)["last_operation_id"]
    lines = gpuaas(home, "op", "log", operation_id, "-o", "json")
    with log.open("a") as file:
        file.write(f"round {number}\n{lines}\n")


def _make_spare(name: str, machine: str) -> None:
    """Start the machine again, and take it out of the cluster: its slurmd registers when it starts."""
    lab(name, "start", machine)
    lab(name, "exec", machine, "--", "systemctl", "stop", "gpuaas-slurm-health", "slurmd")
    out = f"! scontrol show node {machine} >/dev/null 2>&1 || scontrol delete nodename={machine}"
    lab(name, "exec", HEAD, "--", "sh", "-c", out)


def _show(measured: Sequence[Round]) -> None:
    for part in Round._fields:
        values = sorted(getattr(each, part) for each in measured)
        spread = f"fastest {values[0]:.1f} s, slowest {values[-1]:.1f} s"
        print(f"{part.removesuffix('_s'):>10}: median {statistics.median(values):.1f} s, {spread}")
    late = sum(each.first_job_s > LIMIT_S for each in measured)
    print(f"from the cut to the first job on the spare: {late} of {len(measured)} over {LIMIT_S:.0f} s")
    if late:
        raise SystemExit(1)
