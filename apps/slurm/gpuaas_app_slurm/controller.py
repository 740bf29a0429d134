"""The command `gpuaas-slurm`: which handler answers which operation.  The kit claims, this dispatches."""

import sys
from pathlib import Path

from gpuaas_sdk.controller import App, Operation

from gpuaas_app_slurm import bring_up, packages, plan, take_down

app = App(
    "slurm",
    manifest=Path(__file__).with_name("manifest.yaml"),
    packages=packages.wanted_for(tuple(packages.BY_ROLE)),
)


@app.operation("deploy")
async def deploy(op: Operation) -> None:
    await bring_up.deploy(op)


@app.operation("add", role=plan.WORKER)
async def add(op: Operation) -> None:
    await bring_up.add(op)


@app.operation("drain", role=plan.WORKER)
async def drain(op: Operation) -> None:
    await take_down.drain(op)


@app.operation("resume", role=plan.WORKER)
async def resume(op: Operation) -> None:
    await take_down.resume(op)


@app.operation("remove", role=plan.WORKER)
async def remove(op: Operation) -> None:
    await take_down.remove(op)


@app.operation("decommission")
async def decommission(op: Operation) -> None:
    await take_down.decommission(op)


def main() -> None:
    sys.exit(app.main())
