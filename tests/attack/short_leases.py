"""The controller of an app from the scaffold with short leases, so that a test does not wait for the lease of a killed
one as long as an installation does: python short_leases.py FAULT run …

With the fault `appends`, a step adds to a file and takes a second to end."""

import asyncio
import functools
import sys

from gpuaas_app_hello import controller, workload  # type: ignore[import-not-found]  # made by the test
from gpuaas_sdk.controller import RunnerSettings, command
from gpuaas_sdk.machine import Machine

SETTINGS = RunnerSettings(lease_s=3, refused_pause_s=0.2)


def appends() -> None:
    install = workload.install

    async def and_append(machine: Machine, version: str, secret: str) -> None:
        await install(machine, version, secret)
        lines = await machine.get(f"{workload.HOME}/log") or b""
        await machine.put(f"{workload.HOME}/log", lines + b"installed\n")
        await asyncio.sleep(1)

    workload.install = and_append


if __name__ == "__main__":
    _, fault, *words = sys.argv
    if fault == "appends":
        appends()
    runner = functools.partial(controller.app.runner, settings=SETTINGS)
    sys.exit(command.main(controller.app.manifest, (), runner, words))
