"""The lab as `gpuaas up` uses it: run `gpuaas-lab` with the rights machines need, and pass on what it says."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gpuaas_cli import failures, home, programs
from gpuaas_cli.local import plan
from gpuaas_cli.local.report import Report, captured


def privileges() -> plan.Privileges:
    if os.geteuid() == 0:
        return "root"
    try:
        asked = subprocess.run(
            ["sudo", "-n", "true"], check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return "none"
    return "sudo" if asked.returncode == 0 else "none"


def require_privileges() -> plan.Privileges:
    found = privileges()
    if found == "none":
        raise failures.Failure(
            "Machines need root or passwordless sudo, and there is neither; the control plane works without",
            fix="gpuaas up --control-plane-only",
            code="no_privileges",
        )
    return found


def require_program(name: str) -> str:
    found = programs.find(name)
    if found is None:
        raise failures.Failure(
            f"The program {name} is not installed", fix=f"Install the package that brings {name}", code="missing"
        )
    return found


class Lab:
    def __init__(self, report: Report, name: str, rights: plan.Privileges) -> None:
        self._report = report
        self._program = [*plan.lab_prefix(rights), require_program("gpuaas-lab")]
        self._which = ["--lab", name]
        # sudo does not pass the environment on, so what the lab reads from it is said by flag.
        if state := os.environ.get("GPUAAS_LAB_STATE"):
            self._which += ["--state", state]

    def build_image(self, packages: Path) -> None:
        self._report.stream([*self._program, "image", "--packages", str(packages), *self._which])

    def gateway(self) -> str:
        """Make the bridge; the address of this host on it, where machines find the server."""
        answer = captured([*self._program, "network", *self._which])
        return str(json.loads(answer)["gateway"])

    def up(self, count: int, packages: Path, agent: Path, enrolment: Path) -> None:
        files = ["--packages", str(packages), "--agent", str(agent), "--enrol", str(enrolment)]
        self._report.stream([*self._program, "up", "--nodes", str(count), *files, *self._which])

    def down(self, *, purge: bool) -> None:
        self._report.stream([*self._program, "down", *(["--purge"] if purge else []), *self._which])


def write_enrolment(path: Path, server: str, ca_sha256: str, tokens: Mapping[str, str]) -> None:
    content = json.dumps({"server": server, "ca_sha256": ca_sha256, "tokens": dict(tokens)})
    home.write_private(path, content.encode())
