"""The app passes the conformance kit: its operations as a whole, its crashes for a part of the operations.

`GPUAAS_CAMPAIGNS=whole` runs every check on every operation, with a kill at the end of every step."""

import os
import subprocess
import sys

import pytest

WHOLE = os.environ.get("GPUAAS_CAMPAIGNS") == "whole"


def conforms(*options: str) -> bool:
    command = [sys.executable, "-m", "gpuaas_app_ray.conformance", *options]
    return subprocess.run(command, check=False).returncode == 0


def test_crashes_at_the_end_of_the_steps_of_deploy_and_drain_change_no_result() -> None:
    assert conforms("--check", "kill-at-every-step", "--kind", "drain")


@pytest.mark.skipif(not WHOLE, reason="takes minutes: GPUAAS_CAMPAIGNS=whole")
@pytest.mark.timeout(3600)
def test_the_app_passes_every_check() -> None:
    assert conforms()
