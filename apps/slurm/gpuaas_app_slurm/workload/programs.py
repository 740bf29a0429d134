"""The programs of the app that run on each machine, the health reporter and Slurm's health check: which this release of
the app has, and the replacement of those of another release."""

import functools
import hashlib
from collections.abc import Sequence

from gpuaas_sdk.checks import Show
from gpuaas_sdk.machine import File, Machine, commands

from gpuaas_app_slurm.workload import config, footprint, reporter, reporter_program


@functools.cache
def digest() -> str:
    """Return the digits that the reporter of a machine with the programs of this release reports."""
    files = (reporter.program(), config.health_check())
    return reporter_program.programs([(_sha256(file), file.path) for file in files])


async def renew(machine: Machine, roles_here: Sequence[str], progress: Show) -> None:
    """Replace the programs of another release. Call it after all files of the app were put back: the present ones are
    remembered. A machine whose files were never remembered is left alone."""
    listed = await machine.get(footprint.FILES_LIST)
    if listed is None or reporter_program.programs(reporter_program.parsed(listed.decode())) == digest():
        return
    await progress(f"replacing the health programs of {machine.hostname}, which are of another release of the app")
    await machine.run_all(commands.put_all([config.health_check()]))
    await reporter.start(machine, roles_here)


def _sha256(file: File) -> str:
    return hashlib.sha256(str(file.content).encode()).hexdigest()
