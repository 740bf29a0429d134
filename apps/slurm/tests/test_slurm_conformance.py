"""The app passes the conformance kit, as a process, on simulated machines with a Slurm in memory. The whole card is
long: `gpuaas app conformance slurm`, or `make test-slurm ARGS="-k conformance"`."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from gpuaas_app_slurm.controller import app
from gpuaas_app_slurm_conformance.driver import COMMAND, QUICK_COMMAND, SlurmDriver
from gpuaas_sdk import conformance
from gpuaas_sdk.conformance import Subject


async def test_a_controller_as_a_process_deploys_the_app_and_leaves_nothing() -> None:
    subject = Subject.of(app.manifest, COMMAND, SlurmDriver())
    checks = ("operations", "residue", "version-reporting")
    card = await conformance.run(subject, only=checks, kinds=("decommission",))
    assert (card.failures, card.count("passed")) == ([], len(checks))


def test_the_command_of_the_app_runs_the_checks_that_are_named() -> None:
    program = Path(sys.executable).with_name("gpuaas-slurm-conformance")
    named = ["health-promises", "lifecycle", "runbook"]
    flags = [word for name in named for word in ("--check", name)]
    ran = subprocess.run([program, *flags], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert ran.stdout.endswith("conforms: 3 passed, 0 failed, 0 not applicable\n")


def test_the_wheel_has_everything_that_the_command_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        names = wheel.namelist()
    needed = {f"gpuaas_app_slurm_conformance/{name}" for name in ("command.py", "fake_slurm.py", "runbook.md")}
    assert needed - {*names} == set()


@pytest.mark.long
@pytest.mark.timeout(3 * 3600)
async def test_the_app_passes_every_check() -> None:
    """Waits of the app are shorter than in `gpuaas-slurm`. Nothing of the card is not applicable."""
    card = await conformance.run(Subject.of(app.manifest, QUICK_COMMAND, SlurmDriver()))
    assert (card.failures, card.count("passed")) == ([], len(conformance.ALL))
