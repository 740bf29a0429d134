"""How the conformance kit looks at Ray on a simulated machine: gpuaas app conformance ray"""

import json
import sys
from pathlib import Path

from gpuaas_app_ray.workload import ray
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Driver, SimulatedMachine
from gpuaas_sdk.conformance.installs import ACCOUNTS
from gpuaas_sdk.installs import wheels
from gpuaas_sdk.machine import Ran

COMMAND = (str(Path(sys.executable).with_name("gpuaas-ray")),)
SERVICE, TASK = f"{ray.UNIT}.service", f"{ray.DATA}/tmp/task"
JOB = {"submission_id": "j1", "job_id": None, "status": "SUCCEEDED", "entrypoint": "true", "message": ""}
JOBS = [JOB | {"start_time": 1, "end_time": 2}]


class RayDriver(Driver):
    """A task on a machine is a file, which work of a user makes and ends."""

    inputs = {"object_store_mib": 100}
    counts = {"worker": 2}
    patience_s, silent_s = 300.0, 120.0
    actions = {"job.submit": {"script": "1"}, "job.logs": {"job": "j1"}, "job.stop": {"job": "j1"}}
    artifacts = {wheels.artifact("ray"): b"wheels"}
    runbook = Path(__file__).parent / "gpuaas_app_ray/runbook.md"

    def respond(self, machine: SimulatedMachine, argv: tuple[str, ...], data: bytes) -> Ran | None:
        if argv[:2] == ("python3", ray.PROGRAM):
            return self._program(machine, argv[2], argv[-1]) if ray.PROGRAM in machine.files else Ran(2, "", "no file")
        if argv[0] == f"{ray.ENVIRONMENT}/bin/ray":
            return Ran(0, f"ray, version {self.version(machine)}\n", "")
        if ray.FACTS.encode() in data:
            return Ran(0, "2\n8000\n4000\n", "")
        if ray.FOLDERS.encode().strip() in data:
            machine.files[ACCOUNTS + ray.USER] = b""
            return Ran(0, "", "")
        return None

    def serves(self, machine: SimulatedMachine) -> bool:
        return machine.units.get(SERVICE) == "active" and ray.CLOSED not in machine.files and ray.TOKEN in machine.files

    def version(self, machine: SimulatedMachine) -> str | None:
        return "2.60.0" if f"{ray.ENVIRONMENT}/.digest" in machine.files else None

    def begin_work(self, machine: SimulatedMachine) -> bool:
        if self.serves(machine):
            machine.files[TASK] = b""
        return self.serves(machine)

    def end_work(self, machine: SimulatedMachine) -> None:
        machine.files.pop(TASK, None)

    def work(self, machine: SimulatedMachine) -> int:
        return int(TASK in machine.files and machine.units.get(SERVICE) == "active")

    def _program(self, machine: SimulatedMachine, verb: str, url: str) -> Ran:
        if verb == "look":
            # A node leaves by itself when it is drained and has no work.
            runs = machine.units.get(SERVICE) == "active" and (
                ray.CLOSED not in machine.files or self.work(machine) > 0
            )
            view = {"health": "success", "runs": runs, "closed": ray.CLOSED in machine.files}
            return Ran(0, json.dumps(view | {"work": ["ray::task"] * self.work(machine)}), "")
        if url.endswith("cluster_status?format=0"):
            load = {"usage": {"CPU": [1.0, 4.0]}, "resourceDemand": [[{"CPU": 1.0}, 3]]}
            return Ran(0, json.dumps({"data": {"clusterStatus": {"loadMetricsReport": load}}}), "")
        if url.endswith("/logs"):
            return Ran(0, json.dumps({"logs": "hello\n"}), "")
        return Ran(0, json.dumps(JOBS if url.endswith("/jobs/") else JOB), "")


def main() -> None:
    sys.exit(conformance.main(RayDriver(), COMMAND))
