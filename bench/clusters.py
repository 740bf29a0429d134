"""Measure what it costs the controller of the Slurm app to look after 200 idle clusters over SSH: processor time and
memory of its process.

The server, the app, its health loop and the SSH connections are real: one connection and one stream for each cluster,
to its own address. All addresses belong to one machine of the lab, which prints the recorded line of an idle cluster
of nine workers. It takes about three minutes, and needs root: python -m bench clusters

The exit status is 1 if 200 clusters or fewer cost more than the aims of `stewards` allow."""

import argparse
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench import cluster_records, stewards, watched_machine
from bench.platform_parts import ALLOCATION_ROWS, INSTANCE_ROWS, MEMBER_ROWS, NODE_ROWS
from bench.sides import Side
from bench.watched_machine import WatchedMachine

CLUSTERS = 200
_PORT = 7178
_RECORDED = Path(__file__).parents[1] / "apps" / "slurm" / "tests" / "samples" / "watch.json"


def run(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench clusters", description=__doc__)
    parser.add_argument("--clusters", type=int, default=CLUSTERS)
    parser.add_argument("--seconds", type=float, default=stewards.MEASURED_S, help="of the measurement")
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        raise SystemExit(
            "bench: the clusters benchmark starts a machine, which needs root; without: make bench ARGS=stewards"
        )
    with (
        tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as name,
        watched_machine.started(options.clusters) as machine,
    ):
        cost = _measure(Path(name), machine, options.clusters, options.seconds)
    if options.clusters <= CLUSTERS:  # there is no aim for more
        stewards.show(cost)


def _measure(folder: Path, machine: WatchedMachine, count: int, seconds: float) -> stewards.Cost:
    side, manifest = Side(count, folder / "data", "", _PORT), cluster_records.manifest()
    with side.serve():
        side.make_project()
        side.register_app(cluster_records.APP, manifest)
        (folder / "key.json").write_text(json.dumps(side.new_key()))
        logins = [person["login"] for person in side.send("GET", "/posix-people")["items"]]
    _insert(side, machine, manifest["version"])
    principals = [cluster_records.principal(number) for number in range(count)]
    line = cluster_records.watched_line(_RECORDED.read_text(), logins)
    machine.serve(_authority(folder / "data"), cluster_records.OBSERVER, principals, line)
    program = [sys.executable, "-c", "from gpuaas_app_slurm import controller; controller.main()"]
    command = stewards.controller_command(program, side, folder)
    server = side.serve()
    with server:
        print(f"{count} idle Slurm clusters of {1 + cluster_records.WORKERS_EACH} members, {len(line):,} bytes a line:")
        with stewards.measured(side, server.pid, command, folder, seconds) as cost:
            print(f"  SSH connections: {machine.connections()}", flush=True)
    return cost


def _insert(side: Side, machine: WatchedMachine, version: str) -> None:
    of_project = (side.org_id, side.project_id)
    side.insert(NODE_ROWS, lambda: cluster_records.nodes(machine.addresses, machine.host_key))
    side.insert(ALLOCATION_ROWS, lambda: cluster_records.allocations(*of_project, machine.addresses))
    side.insert(INSTANCE_ROWS, lambda: cluster_records.instances(*of_project, side.size, version))
    side.insert(MEMBER_ROWS, lambda: cluster_records.members(*of_project, machine.addresses))


def _authority(data: Path) -> str:
    """Return the public key of the server's SSH authority, which agents put on machines."""
    with sqlite3.connect(data / "gpuaas.sqlite") as connection:
        return str(connection.execute("SELECT public_key FROM ssh_authority").fetchone()[0])
