"""The lab as `gpuaas up` uses it: run `gpuaas-lab`, which gets the rights that machines need, and show its output."""

import json
import subprocess
from pathlib import Path

from gpuaas_cli import failures, programs
from gpuaas_cli.local.report import Report, captured


def require_program(name: str) -> str:
    result = programs.find(name)
    if result is None:
        raise failures.Failure(
            f"The program {name} is not installed", fix=f"Install the package that brings {name}", code="missing"
        )
    return result


class Lab:
    def __init__(self, report: Report, name: str) -> None:
        self._report = report
        self._program = require_program("gpuaas-lab")
        self._which = ["--lab", name]

    def require_rights(self) -> None:
        """Before anything is made or stopped: a half-made cloud is of no use."""
        asked = subprocess.run([self._program, "check"], check=False, stdin=subprocess.DEVNULL, capture_output=True)
        if asked.returncode != 0:
            raise failures.Failure(
                "Machines need root or sudo that asks for no password, and there is neither",
                fix="sudo -v, then the same again; or without machines: gpuaas up --control-plane-only",
                code="no_privileges",
            )

    def build_image(self, packages: Path) -> None:
        self._report.stream([self._program, "image", "--packages", str(packages), *self._which])

    def gateway(self) -> str:
        """Make the bridge; the address of this host on it, where machines find the server."""
        return str(json.loads(captured([self._program, "network", *self._which]))["gateway"])

    def machines(self) -> set[str]:
        """Names of those that have a disk, whether they run or not."""
        answer = captured([self._program, "status", "-o", "json", *self._which])
        return {machine["name"] for machine in json.loads(answer)}

    def up(self, count: int, packages: Path, agent: Path, enrolment: Path) -> None:
        files = ["--packages", str(packages), "--agent", str(agent), "--enrol", str(enrolment)]
        self._report.stream([self._program, "up", "--nodes", str(count), *files, *self._which])

    def down(self, *, purge: bool) -> None:
        self._report.stream([self._program, "down", *(["--purge"] if purge else []), *self._which])
