"""The controller of the Slurm app as it is released, on machines in memory whose Slurm answers from memory.

It does not look after instances between operations. It would do so at the same time as the recorded operation, and the
recording would depend on who is faster."""

import sys

from fake_slurm import SETTINGS, FakeSlurm
from gpuaas_app_slurm import controller
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import Gauges, command
from gpuaas_sdk.controller.runner import Runner
from gpuaas_sdk.testing import FakeMachines
from gpuaas_sdk.traces import Spans


def main() -> None:
    app = controller.build(SETTINGS)
    app._handlers.health = None
    slurm = FakeSlurm(nodes={"127.0.0.2": ["IDLE"], "127.0.0.4": ["IDLE"]})
    machines = FakeMachines(slurm.answer, slurm.answer_script)

    def runner(client: Client, project_id: str, name: str, *, spans: Spans | None, gauges: Gauges | None) -> Runner:
        return app.runner(client, project_id, name, connect=machines.connect, spans=spans, gauges=gauges)

    sys.exit(command.main(app.manifest, (), runner))
