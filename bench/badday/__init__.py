"""A bad day: a real server under load is killed, starved and stopped, on both stores.

Each case counts the changes that were acknowledged and what was lost, doubled or deleted early, and checks that
`/readyz` was truthful. The exit status is 1 if anything of that is wrong. The full disk needs root."""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx

from bench.badday import crashes, floods, shortages, times
from bench.badday.parts import postgres_server
from bench.badday.result import HEADER, Case, Place, Result, Size

CASES: dict[str, Case] = {
    "kills": crashes.kills,
    "disk": shortages.full_disk,
    "descriptors": shortages.no_descriptors,
    "heads": floods.heads,
    "clock": times.clock_jumps,
    "stop": times.stopped,
    "restarts": crashes.restarts,
    "failovers": crashes.failovers,
}
STORES = ("sqlite", "postgres")
ONLY_POSTGRES = ("restarts", "failovers")
NEEDS_ROOT = ("disk",)
_PRIVATE = "GPUAAS_BADDAY_PRIVATE_MOUNTS"


def run(arguments: Sequence[str]) -> int:
    """Run the cases and print a row for each. Return the exit status."""
    options = _parser().parse_args(arguments)
    if os.geteuid() == 0 and _PRIVATE not in os.environ:
        return _run_with_private_mounts(arguments)
    fields = [field.name for field in dataclasses.fields(Size)]
    size = Size(**{name: getattr(options, name) for name in fields})
    print(HEADER)
    passed = [_run(name, store, size) for name in options.case or CASES for store in options.store or STORES]
    return 0 if all(passed) else 1


def _run(name: str, store: str, size: Size) -> bool:
    if store == "sqlite" and name in ONLY_POSTGRES:
        return True
    if name in NEEDS_ROOT and os.geteuid() != 0:
        print(f"{name:12}{store:12}not run: needs root")
        return True
    with place(store, size) as made:
        try:
            result = asyncio.run(CASES[name](made))
        except (AssertionError, OSError, httpx.HTTPError, subprocess.CalledProcessError) as error:
            result = Result("did not finish", wrong=[f"{type(error).__name__}: {error}"])
    print(result.line(name, made.store), flush=True)
    return result.passed


@contextlib.contextmanager
def place(store: str, size: Size) -> Iterator[Place]:
    """A new folder and an empty store; for PostgreSQL with a server of its own.

    The folder is on a disk, not in memory: a commit then takes long enough that kills happen during one."""
    folder = Path(tempfile.mkdtemp(prefix="gpuaas-badday-"))
    folder.chmod(0o755)
    try:
        if store == "sqlite":
            yield Place(folder, size)
            return
        with postgres_server.running(folder / "pg") as url:
            postgres_server.create_database(folder / "pg", "badday")
            yield Place(folder, size, url.format(database="badday"), folder / "pg")
    finally:
        shutil.rmtree(folder)


def _run_with_private_mounts(arguments: Sequence[str]) -> int:
    """File systems that a case mounts are seen by its processes only, and end with them."""
    command = ["unshare", "--mount", sys.executable, "-m", "bench", "badday", *arguments]
    return subprocess.run(command, env={**os.environ, _PRIVATE: "1"}, check=False).returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench ARGS=badday", description=__doc__)
    parser.add_argument("--case", action="append", choices=list(CASES), help="run only this case; repeatable")
    parser.add_argument("--store", action="append", choices=STORES, help="run only on this store; repeatable")
    for field in dataclasses.fields(Size):
        option, kind = f"--{field.name.replace('_', '-')}", type(field.default)
        parser.add_argument(option, type=kind, default=field.default, help=f"default: {field.default}")
    return parser
