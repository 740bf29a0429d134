"""Compare a deploy of one controller and three workers with a parallel shell script on the same machines.

Each round starts with new machines. It deploys and decommissions, which restores the machines, and then runs the
script."""

import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
LAB = "bench"
ROUNDS = 2
MACHINES = ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]


def run() -> None:
    if os.geteuid() != 0:
        raise SystemExit(
            "bench: the deploy benchmark starts machines, which needs root; without machines: make bench ARGS=api"
        )
    times: dict[str, list[float]] = {"platform": [], "by hand": []}
    for number in range(1, ROUNDS + 1):
        platform_s, by_hand_s = _round()
        times["platform"].append(platform_s)
        times["by hand"].append(by_hand_s)
        print(f"round {number}: platform {platform_s:.1f} s, by hand {by_hand_s:.1f} s")
    platform_s, by_hand_s = (statistics.median(times[name]) for name in ("platform", "by hand"))
    print(f"deploy of 1 controller and 3 workers with a first job: platform / by hand = {platform_s / by_hand_s:.2f}")


def _round() -> tuple[float, float]:
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as home:
        _gpuaas(home, "down", "--lab", LAB, "--purge")
        try:
            _gpuaas(home, "up", "--lab", LAB, "--port", "7191", "--nodes", str(len(MACHINES)), "--no-deploy")
            return _deploy(home), _by_hand(Path(home))
        finally:
            _gpuaas(home, "down", "--lab", LAB, "--purge")


def _deploy(home: str) -> float:
    settings = ["cluster_name=bench", "controller_allocation_id=gpu-1", "worker_allocation_ids=gpu-2,gpu-3,gpu-4"]
    flags = [argument for setting in settings for argument in ("--set", setting)]
    _gpuaas(home, "deploy", "slurm", "--name", "bench", "--topology", "split", *flags)
    instance = json.loads(_gpuaas(home, "get", "instance", "bench", "-o", "json"))
    operation = json.loads(_gpuaas(home, "get", "operation", instance["last_operation_id"], "-o", "json"))
    started, ended = (datetime.datetime.fromisoformat(operation[name]) for name in ("created_at", "ended_at"))
    _gpuaas(home, "decommission", "bench", "--yes")
    return (ended - started).total_seconds()


def _by_hand(folder: Path) -> float:
    key = folder / "root-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text()
    for machine in MACHINES:
        write = "mkdir -p -m 700 /root/.ssh && cat > /root/.ssh/authorized_keys"
        _lab("exec", machine, "--", "sh", "-c", write, input=public)
    addresses = [_lab("address", machine).strip() for machine in MACHINES]
    script = Path(__file__).with_name("by_hand.sh")
    started = time.monotonic()
    result = subprocess.run([str(script), str(key), *addresses], capture_output=True, text=True, check=False)
    took_s = time.monotonic() - started
    if sorted(result.stdout.split()) != MACHINES[1:]:
        raise SystemExit(f"bench: the shell script did not start the cluster:\n{result.stdout}{result.stderr}")
    return took_s


def _gpuaas(home: str, *arguments: str) -> str:
    environment = {**os.environ, "GPUAAS_HOME": home, "NO_COLOR": "1"}
    result = subprocess.run(
        [str(BIN / "gpuaas"), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise SystemExit(f"bench: gpuaas {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def _lab(command: str, *arguments: str, input: str = "") -> str:
    argv = [str(BIN / "gpuaas-lab"), command, "--lab", LAB, *arguments]
    return subprocess.run(argv, input=input, capture_output=True, text=True, check=True).stdout
