"""Deploy one controller and three workers: through the platform, and by a parallel shell script on the same machines.

Each round starts with fresh machines: our deploy, our decommission, which leaves them as they were, the script."""

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
        raise SystemExit("bench: the deploy benchmark starts machines, which needs root; alone: make bench ARGS=api")
    times: dict[str, list[float]] = {"ours": [], "by hand": []}
    for number in range(1, ROUNDS + 1):
        ours, by_hand = _round()
        times["ours"].append(ours)
        times["by hand"].append(by_hand)
        print(f"round {number}: ours {ours:.1f} s, by hand {by_hand:.1f} s")
    ours, by_hand = (statistics.median(times[name]) for name in ("ours", "by hand"))
    print(f"deploy of 1+3 until the first job ran: ours / by hand = {ours / by_hand:.2f}")


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
    flags = [word for setting in settings for word in ("--set", setting)]
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
        _lab("exec", machine, "--", "sh", "-c", write, given=public)
    addresses = [_lab("address", machine).strip() for machine in MACHINES]
    script = Path(__file__).with_name("by_hand.sh")
    started = time.monotonic()
    printed = subprocess.run([str(script), str(key), *addresses], capture_output=True, text=True, check=False)
    took_s = time.monotonic() - started
    if sorted(printed.stdout.split()) != MACHINES[1:]:
        raise SystemExit(f"bench: the shell script did not bring the cluster up:\n{printed.stdout}{printed.stderr}")
    return took_s


def _gpuaas(home: str, *arguments: str) -> str:
    environment = {**os.environ, "GPUAAS_HOME": home, "NO_COLOR": "1"}
    done = subprocess.run(
        [str(BIN / "gpuaas"), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"bench: gpuaas {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def _lab(command: str, *arguments: str, given: str = "") -> str:
    argv = [str(BIN / "gpuaas-lab"), command, "--lab", LAB, *arguments]
    return subprocess.run(argv, input=given, capture_output=True, text=True, check=True).stdout
