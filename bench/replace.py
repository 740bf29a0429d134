"""Measure how long a worker is missed whose power is cut: from the cut to the first job on the machine in its place.

Each round cuts the power of a worker, waits until the platform shows that it failed, requests the replace by force
through the public API, and reads the times that the platform recorded. The machine that was replaced is started again
and is the spare of the next round: it then has the packages of Slurm, and is not a part of the cluster. The first spare
does not have them, so a round that does not count comes first. Needs root: python -m bench replace"""

import argparse
import asyncio
import datetime
import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpuaas_cli.client import home as contexts
from gpuaas_contract import instances, lifecycles, operations
from gpuaas_sdk.auth import BearerToken
from gpuaas_sdk.client import Client

from bench import aims
from bench.slurm_machines import gpuaas, lab

ROUNDS = 20
LIMIT_S = 30.0
HEAD, WORKERS, SPARE = "gpu-1", ("gpu-2", "gpu-3"), "gpu-4"
INSTANCE = "bench"
BROUGHT_UP = "bring up the new machine"


class Ids(NamedTuple):
    project_id: str
    instance_id: str


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
        measured.append(asyncio.run(_round(home, name, old, spare)))
        if log is not None:
            _write_log(home, spare, number, log)
        parts = ", ".join(f"{part.removesuffix('_s')} {value:.1f}" for part, value in measured[-1]._asdict().items())
        what = f"round {number}" if number else "with the installation of the packages"
        print(f"{what}: {old} -> {spare}: {parts}, load {os.getloadavg()[0]:.1f}", flush=True)
        _make_spare(name, old)
        old, spare = spare, old
    return measured[1:]


async def _round(home: str, name: str, old: str, spare: str) -> Round:
    # A program of the command line for each question would load the host, which is part of what is measured.
    context = contexts.load(Path(home)).contexts[name]
    instance = json.loads(gpuaas(home, "get", "instance", INSTANCE, "-o", "json"))
    ids = Ids(context.project_id, instance["instance_id"])
    async with Client(context.server, BearerToken(context.token)) as client:
        cut_at = datetime.datetime.now(datetime.UTC)
        lab(name, "kill", old)
        member = await _unwell(client, ids, old)
        noticed_at = datetime.datetime.now(datetime.UTC)
        operation = await _replaced(client, ids, member, spare)
    if operation.status != "succeeded":
        raise SystemExit(f"bench: the replace of {old} by {spare} ended with {operation.status}: {operation.error}")
    first_job = next(step for step in operation.steps if step.name == BROUGHT_UP)
    times = (noticed_at, operation.created_at, operation.started_at, first_job.ended_at, operation.ended_at)
    return Round(*((moment - cut_at).total_seconds() for moment in times if moment is not None))


async def _unwell(client: Client, ids: Ids, node_name: str) -> instances.Member:
    """Wait until the platform shows that the member of this machine is not ready; return the member."""
    while True:
        pages = client.pages(instances.MEMBER_LIST, project_id=ids.project_id, instance_id=ids.instance_id)
        listed = [item async for item in pages if item.node_name == node_name]
        member = next(item for item in listed if item.status not in lifecycles.GONE_MEMBER)
        if member.status != "ready":
            return member
        await asyncio.sleep(0.2)


async def _replaced(client: Client, ids: Ids, member: instances.Member, spare: str) -> operations.Operation:
    """Request the replace, and return the operation after its end."""
    body = instances.MemberOperationRequest(
        kind="replace",
        component_key=member.component_key,
        member_ids=[member.member_id],
        allocation_ids=[spare],
        reason="power cut",
        force=True,
    )
    operation = await client.call(
        instances.MEMBER_OPERATION_CREATE, body, project_id=ids.project_id, instance_id=ids.instance_id
    )
    async for _ in client.watch_operation(ids.project_id, operation.operation_id):
        pass
    return await client.call(operations.OPERATION_GET, project_id=ids.project_id, operation_id=operation.operation_id)


def _write_log(home: str, node_name: str, number: int, log: Path) -> None:
    listed = json.loads(gpuaas(home, "get", "members", INSTANCE, "-o", "json"))["items"]
    operation_id = next(item["last_operation_id"] for item in listed if item["node_name"] == node_name)
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
    aims.show([aims.Aim(f"rounds of {len(measured)} over {LIMIT_S:.0f} s from the cut to the first job", late, 0)])
