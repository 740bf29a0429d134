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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh
from gpuaas_sdk.conformance import Subject, plan

from bench.crashes import cloud
from bench.crashes.clusters import Cluster
from bench.crashes.judge import HEADER, Row
from bench.crashes.rounds import Rounds
from bench.crashes.subjects import APPS

_PRIVATE = "GPUAAS_CRASHES_PRIVATE_NETWORK"
_SHOWN_MAX = 5


def run(arguments: Sequence[str]) -> int:
    """Run the matrix and print a row for each operation. Return the exit status."""
    options = _parser().parse_args(arguments)
    if _PRIVATE not in os.environ:
        # The same process, so that a signal reaches the program that has something to print and to clean up.
        command = _with_private_network([sys.executable, "-m", "bench", "crashes", *arguments])
        os.execvpe(command[0], command, {**os.environ, _PRIVATE: "1"})
    with APPS[options.app]() as subject:
        size = Size(options.instants, options.at_once, options.seed, tuple(options.kind), options.fail_fast)
        return asyncio.run(matrix(subject, size))


def _show_rows(rows: Sequence[Row]) -> int:
    """Print a row for each operation. Return the exit status."""
    print(HEADER)
    for row in rows:
        print("\n    ".join([row.line(), *row.wrong[:_SHOWN_MAX]]), flush=True)
    return 1 if any(row.wrong for row in rows) else 0


@dataclass(frozen=True)
class Size:
    """How often operations are interrupted."""

    instants: int
    """Of each operation. A kill hits one operation of each instance, and each at another instant."""
    at_once: int
    """Instances at the same time."""
    seed: int
    kinds: tuple[str, ...] = ()
    """Kinds of operations that are interrupted; empty: all."""
    fail_fast: bool = False
    """End with the first round in which something is wrong."""


async def matrix(subject: Subject, chosen: Size) -> int:
    """Interrupt the operations of the app, in a private network, and print a row for each, also if a signal ends the
    run early. Return the exit status."""
    adds = sum(move.kind == "add" for move in plan.tour(subject.manifest, subject.driver))
    size = sum(plan.counts(subject.manifest, subject.driver).values()) + adds + 1  # one for a replace
    key = asyncssh.generate_private_key("ssh-ed25519")
    clusters = [Cluster(number, size, subject, key) for number in range(chosen.at_once)]
    with tempfile.TemporaryDirectory(prefix="gpuaas-crashes-") as folder:
        async with cloud.opened(subject, clusters, Path(folder)) as live:
            rounds = Rounds(live, clusters, chosen.kinds, chosen.seed)
            try:
                await rounds.measure()
                _show("undisturbed run measured")
                await rounds.run(chosen.instants, _show, fail_fast=chosen.fail_fast)
            finally:
                status = _show_rows(list(rounds.rows.values()))
            return status


def _show(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def in_private_network(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run a program in a network of its own: each machine has an SSH server at port 22 of its own address."""
    environment = {**os.environ, _PRIVATE: "1"}
    return subprocess.run(_with_private_network(command), env=environment, check=False, **options)


def _with_private_network(command: Sequence[str]) -> list[str]:
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", *own, "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=crashes", description=__doc__)
    parser.add_argument("--app", choices=list(APPS), required=True)
    parser.add_argument(
        "--kind", action="append", default=[], help="interrupt only this kind; repeatable; default: all"
    )
    parser.add_argument("--instants", type=int, default=300, help="of each operation; default: 300")
    parser.add_argument("--at-once", type=int, default=20, help="instances that one kill hits; default: 20")
    parser.add_argument("--fail-fast", action="store_true", help="end with the first round in which something is wrong")
    parser.add_argument("--seed", type=int, default=1, help="of the instants; default: 1")
    return parser
