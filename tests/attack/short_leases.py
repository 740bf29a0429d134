"""The controller of an app from the scaffold with short leases, so that a test does not wait for the lease of a killed
one as long as an installation does: python short_leases.py FAULT run …

With the fault `appends`, a step adds to a file and takes a second to end."""

import asyncio
import sys

from gpuaas_app_hello import controller, workload  # type: ignore[import-not-found]  # made by the test
from gpuaas_sdk.client import Client
from gpuaas_sdk.controller import Gauges, RunnerSettings, command
from gpuaas_sdk.controller.logs import Redaction
from gpuaas_sdk.controller.runner import Runner
from gpuaas_sdk.machine import Machine
from gpuaas_sdk.traces import Spans

SETTINGS = RunnerSettings(lease_s=3, refused_pause_s=0.2)


def appends() -> None:
    install = workload.install

    async def and_append(machine: Machine, version: str, secret: str) -> None:
        await install(machine, version, secret)
        lines = await machine.get(f"{workload.HOME}/log") or b""
        await machine.put(f"{workload.HOME}/log", lines + b"installed\n")
        await asyncio.sleep(1)

    workload.install = and_append


def runner(
    client: Client,
    project_id: str,
    name: str,
    *,
    spans: Spans | None,
    gauges: Gauges | None,
    redaction: Redaction | None,
) -> Runner:
    made: Runner = controller.app.runner(
        client, project_id, name, settings=SETTINGS, spans=spans, gauges=gauges, redaction=redaction
    )
    return made


if __name__ == "__main__":
    _, fault, *words = sys.argv
    if fault == "appends":
        appends()
    sys.exit(command.main(controller.app.manifest, (), runner, words))
