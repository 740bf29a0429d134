"""The crash matrix: kill -9 of the app's controller and of the platform in turns, at random instants of each operation.

The platform and the controller are real processes; the machines are those of the conformance kit, which record every
effect. Many instances do the same operation at once and are at different points of it when the kill comes. Each
operation must end once, as succeeded and within 60 s, with no effect more often and no other result than undisturbed.
The exit status is 1 if one did not. It needs Linux, and root or user namespaces: it has a network of its own."""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import asyncssh
from gpuaas_sdk.conformance import Subject, plan

from bench.crashes import cloud
from bench.crashes.clusters import Cluster
from bench.crashes.judge import HEADER, Row
from bench.crashes.rounds import Rounds
from bench.crashes.subjects import APPS

SPARE = 2
"""Machines of a cluster beside those of the deploy: for an add and for a replace."""
_PRIVATE = "GPUAAS_CRASHES_PRIVATE_NETWORK"
_SHOWN_MAX = 5


def run(arguments: Sequence[str]) -> int:
    """Run the matrix and print a row for each operation. Return the exit status."""
    options = _parser().parse_args(arguments)
    if _PRIVATE not in os.environ:
        return _run_with_private_network(arguments)
    with APPS[options.app]() as subject:
        rows = asyncio.run(matrix(subject, options))
    print(HEADER)
    for row in rows:
        print("\n    ".join([row.line(), *row.wrong[:_SHOWN_MAX]]), flush=True)
    return 1 if any(row.wrong for row in rows) else 0


async def matrix(subject: Subject, options: argparse.Namespace) -> list[Row]:
    """Return the row of each chosen operation."""
    size = sum(plan.counts(subject.manifest, subject.driver).values()) + SPARE
    key = asyncssh.generate_private_key("ssh-ed25519")
    clusters = [Cluster(number, size, subject, key) for number in range(options.at_once)]
    with tempfile.TemporaryDirectory(prefix="gpuaas-crashes-") as folder:
        async with cloud.opened(subject, clusters, Path(folder)) as opened:
            rounds = Rounds(opened, clusters, options.kind, options.seed)
            await rounds.measure()
            _show("undisturbed run measured")
            await rounds.run(options.instants, _show)
            return list(rounds.rows.values())


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _run_with_private_network(arguments: Sequence[str]) -> int:
    """Run this program again in a network of its own: each machine has an SSH server at port 22 of its own address."""
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    inner = [sys.executable, "-m", "bench", "crashes", *arguments]
    command = ["unshare", *own, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *inner]
    return subprocess.run(command, env={**os.environ, _PRIVATE: "1"}, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=crashes", description=__doc__)
    parser.add_argument("--app", choices=list(APPS), required=True)
    parser.add_argument("--kind", action="append", default=[], help="interrupt only this kind; repeatable; default: all")
    parser.add_argument("--instants", type=int, default=300, help="of each operation; default: 300")
    parser.add_argument("--at-once", type=int, default=20, help="instances that one kill hits; default: 20")
    parser.add_argument("--seed", type=int, default=1, help="of the instants; default: 1")
    return parser
