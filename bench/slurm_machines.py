"""Machines of a lab with a local cloud, for benchmarks of the Slurm app: deploy, add and remove, with their times."""

import concurrent.futures
import contextlib
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BIN = Path(sys.executable).parent
_PRESENT = """
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install slurmd slurm-client libpmix2t64 logrotate
rm /usr/sbin/policy-rc.d
"""


@dataclass(frozen=True)
class Cloud:
    """A local cloud with `names` as its machines."""

    home: Path
    lab_name: str
    names: Sequence[str]

    def deploy(self, controller: str, workers: Sequence[str]) -> float:
        """Deploy a cluster and return how many seconds the operation took, with its first jobs."""
        settings = [
            "cluster_name=bench",
            f"controller_allocation_id={controller}",
            f"worker_allocation_ids={','.join(workers)}",
        ]
        flags = [argument for setting in settings for argument in ("--set", setting)]
        self.gpuaas("deploy", "slurm", "--name", "bench", "--topology", "split", *flags)
        return self._last_operation_s()

    def add(self, workers: Sequence[str]) -> float:
        machines = [argument for name in workers for argument in ("--allocation", name)]
        self.gpuaas("member", "add", "bench", "--role", "worker", *machines)
        return self._last_operation_s()

    def upgrade(self, version: str) -> float:
        self.gpuaas("upgrade", "bench", "--version", version)
        return self._last_operation_s()

    def remove(self, worker: str) -> None:
        self.gpuaas("member", "remove", "bench", worker)

    def decommission(self) -> None:
        self.gpuaas("decommission", "bench", "--yes")

    def gpuaas(self, *arguments: str) -> str:
        return gpuaas(str(self.home), *arguments)

    def lab(self, command: str, *arguments: str, input: str = "") -> str:
        return lab(self.lab_name, command, *arguments, input=input)

    def on(self, machine: str, script: str) -> str:
        """Run a script on a machine as root, without the platform."""
        return self.lab("exec", machine, "--", "bash", "-euo", "pipefail", "-c", script)

    def install_packages(self, machines: Sequence[str]) -> None:
        """Install the packages of a worker, as an image of a site has them already."""
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self.on(name, _PRESENT), machines))

    def first_job_s(self) -> float:
        """Return how many seconds the last operation took until the first jobs on its new workers had ended."""
        operation = self._last_operation()
        jobs = [step["ended_at"] for step in operation["steps"] if step["name"] == "first job runs"]
        return _seconds(operation["created_at"], max(jobs))

    def _last_operation_s(self) -> float:
        operation = self._last_operation()
        return _seconds(operation["created_at"], operation["ended_at"])

    def _last_operation(self) -> Any:
        instance = json.loads(self.gpuaas("get", "instance", "bench", "-o", "json"))
        return json.loads(self.gpuaas("get", "operation", instance["last_operation_id"], "-o", "json"))


def _seconds(start: str, end: str) -> float:
    return (datetime.datetime.fromisoformat(end) - datetime.datetime.fromisoformat(start)).total_seconds()


@contextlib.contextmanager
def started(count: int, *, lab_name: str, port: int) -> Iterator[Cloud]:
    """Start a local cloud with this many new machines, and delete it afterwards."""
    with tempfile.TemporaryDirectory(prefix="gpuaas-bench-") as home:
        cloud = Cloud(Path(home), lab_name, [f"gpu-{number}" for number in range(1, count + 1)])
        cloud.gpuaas("down", "--lab", lab_name, "--purge")
        try:
            cloud.gpuaas("up", "--lab", lab_name, "--port", str(port), "--nodes", str(count), "--no-deploy")
            yield cloud
        finally:
            cloud.gpuaas("down", "--lab", lab_name, "--purge")


def gpuaas(home: str, *arguments: str) -> str:
    """Run the command line; return what it printed."""
    environment = {**os.environ, "GPUAAS_HOME": home, "NO_COLOR": "1"}
    result = subprocess.run(
        [str(BIN / "gpuaas"), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise SystemExit(f"bench: gpuaas {' '.join(arguments)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout


def lab(name: str, command: str, *arguments: str, input: str = "") -> str:
    """Run a command of the lab; return what it printed."""
    argv = [str(BIN / "gpuaas-lab"), command, "--lab", name, *arguments]
    return subprocess.run(argv, input=input, capture_output=True, text=True, check=True).stdout
