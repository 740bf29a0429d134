"""The controller of the Slurm app as it is released, on machines in memory whose Slurm answers from memory.

It does not look after instances between operations. It would do so at the same time as the recorded operation, and the
recording would depend on who is faster."""

import functools
import sys

from gpuaas_app_slurm import controller
from gpuaas_app_slurm_conformance.fake_slurm import SETTINGS, FakeSlurm
from gpuaas_sdk.controller import command
from gpuaas_sdk.testing import FakeMachines


def main() -> None:
    app = controller.build(SETTINGS)
    app._handlers.health = None
    slurm = FakeSlurm(nodes={"127.0.0.2": ["IDLE"], "127.0.0.4": ["IDLE"]})
    machines = FakeMachines(slurm.answer, slurm.answer_script)
    sys.exit(command.main(app.manifest, (), functools.partial(app.runner, connect=machines.connect)))
