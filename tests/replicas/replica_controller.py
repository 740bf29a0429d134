"""The controller of the Slurm app as it is released, on machines in memory whose Slurm changes all the time.

`replica_controller.py FOLDER run … --name NAME`. FOLDER/NAME.records gets a line of JSON for each report to the
platform and its answer. If FOLDER/hold exists, the first process that is about to send a report takes it and stops
itself with SIGSTOP at the worst moment: after it has checked its lease, before the first byte is sent."""

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from gpuaas_app_slurm import controller
from gpuaas_app_slurm.settings import Settings
from gpuaas_app_slurm_conformance.fake_slurm import CLUSTER_NAME, FakeSlurm
from gpuaas_contract.runtime import RUNTIME_REPORT
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import HealthSettings, RunnerSettings, command
from gpuaas_sdk.controller.runner import Runner
from gpuaas_sdk.testing import FakeMachines

SETTINGS = RunnerSettings(claim_wait_s=1, health=HealthSettings(interval_s=0.2, lease_s=1))
HEAD = "127.0.0.1"
PRINT_EVERY_S = 0.05

Call = Callable[..., Awaitable[Any]]


def main() -> None:
    folder, sys.argv = Path(sys.argv[1]), [sys.argv[0], *sys.argv[2:]]
    app = controller.build(Settings())
    machines = FakeMachines(FakeSlurm(nodes={"gpu-2": ["IDLE"]}).answer)
    threading.Thread(target=_print_changes, args=(machines.host(HEAD).printed,), daemon=True).start()

    def runner(client: Client, project_id: str, name: str, **shared: Any) -> Runner:
        client.call = _recorded(client.call, folder, name)  # type: ignore[method-assign]
        return app.runner(client, project_id, name, settings=SETTINGS, connect=machines.connect, **shared)

    sys.exit(command.main(app.manifest, (), runner))


def _print_changes(printed: list[str]) -> None:
    """Print what the watch of a cluster prints. Its version changes each time, so that each look has news."""
    number = 0
    while True:
        number += 1
        node = {"name": "gpu-2", "flags": ["IDLE"], "report": {}, "is_stale": False}
        seen = {
            "ping": "Slurmctld(primary) at gpu-1 is UP",
            "accounting": CLUSTER_NAME,
            "associations": "admin|",
            "nodes": [node],
            "own": {"report": {}, "is_stale": False},
            "version": f"24.11.{number}",
        }
        printed.append(json.dumps(seen))
        time.sleep(PRINT_EVERY_S)


def _recorded(call: Call, folder: Path, name: str) -> Any:
    def note(**record: object) -> None:
        with (folder / f"{name}.records").open("a") as records:
            records.write(json.dumps(record) + "\n")

    def ended(epoch: int, task: "asyncio.Task[Any]") -> None:
        error = task.exception()
        if error is None:
            # The platform accepts the reports of one instance one after the other; each changes a member.
            revisions = {member.component_key: member.revision for member in task.result().members}
            note(state="accepted", epoch=epoch, revision=revisions.get("controller", 0))
        else:
            note(state="refused", epoch=epoch, code=getattr(error, "code", type(error).__name__))

    async def recorded(endpoint: Any, *arguments: Any, **options: Any) -> Any:
        if endpoint is not RUNTIME_REPORT:
            return await call(endpoint, *arguments, **options)
        epoch = arguments[0].epoch
        if _takes(folder / "hold", folder / f"{name}.hold"):
            note(state="paused", epoch=epoch)
            os.kill(os.getpid(), signal.SIGSTOP)
        # The look may be cancelled, because the stewardship is lost. The report is sent and its answer is read anyway.
        sent = asyncio.ensure_future(call(endpoint, *arguments, **options))
        sent.add_done_callback(lambda task: ended(epoch, task))
        return await asyncio.shield(sent)

    return recorded


def _takes(offered: Path, taken: Path) -> bool:
    try:
        offered.rename(taken)
    except FileNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
