"""Measure how long 3 and 16 machines take to start: with new disks, with used disks, and if they run already."""

import os
import subprocess
import sys
import time
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("gpuaas-lab")
LAB = "benchlab"


def run() -> None:
    if os.geteuid() != 0:
        raise SystemExit(
            "bench: the lab benchmark starts machines, which needs root; without machines: make bench ARGS=api"
        )
    _lab("image")
    _lab("down", "--purge")
    try:
        measured = {
            "up, 3 machines, fresh disks": _lab("up", "--nodes", "3"),
            "up again": _lab("up", "--nodes", "3"),
            "down": _lab("down"),
            "up, 3 machines, used disks": _lab("up", "--nodes", "3"),
            "down, disks deleted": _lab("down", "--purge"),
            "up, 16 machines, fresh disks": _lab("up", "--nodes", "16"),
            "up again, 16 machines": _lab("up", "--nodes", "16"),
            "down, 16 machines": _lab("down"),
        }
    finally:
        _lab("down", "--purge")
    _print(measured)


def _print(measured: dict[str, float]) -> None:
    first_s = next(iter(measured.values()))
    print(f"{'':32}{'seconds':>10}{'ratio to the first':>20}")
    for title, seconds in measured.items():
        print(f"{title:32}{seconds:10.2f}{seconds / first_s:20.2f}")


def _lab(command: str, *arguments: str) -> float:
    started = time.monotonic()
    result = subprocess.run(
        [str(PROGRAM), command, "--lab", LAB, *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise SystemExit(f"bench: gpuaas-lab {command} failed:\n{result.stdout}{result.stderr}")
    return time.monotonic() - started
