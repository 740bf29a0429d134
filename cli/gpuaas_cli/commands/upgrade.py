"""`gpuaas upgrade`: move an instance to another version of its app."""

from typing import Annotated, Any

import typer
from gpuaas_contract.capacity import ALLOCATION_LIST
from gpuaas_contract.catalog import Manifest
from gpuaas_contract.instances import UPGRADE, Instance, UpgradeInstance

from gpuaas_cli.client import lookup, session
from gpuaas_cli.commands.deploy import find_version
from gpuaas_cli.input import values
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, Force, InstanceName, Reason, Sets, check_force
from gpuaas_cli.work import operations

app = run.command_group()


@run.command(app)
def upgrade(
    context: typer.Context,
    instance: InstanceName,
    version: Annotated[str, typer.Option(help="Newest the project may deploy if empty.")] = "",
    sets: Sets = None,
    reason: Reason = "",
    force: Force = False,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Move an instance to another version. Inputs stay as they are but for those named with --set.

    Example: gpuaas upgrade slurm --version 1.1.0
    """
    check_force(force, reason, f"gpuaas upgrade {instance}")

    async def work(opened: session.Session) -> int:
        found = await lookup.instance(opened, instance)
        wanted = await find_version(opened, found.app_slug, version)
        body = UpgradeInstance(
            version=wanted.version,
            inputs=await _inputs(opened, found, wanted.manifest, sets) if sets else None,
            reason=reason,
            force=force,
        )
        operation = await opened.call(UPGRADE, body, dry_run=dry_run, instance_id=found.instance_id)
        about = f"{len(operation.targets)} members, from {found.app_version}"
        return await operations.finish(opened, operation, about=about, detach=detach, dry_run=dry_run)

    return session.run(run.flags_of(context), work)


async def _inputs(opened: session.Session, found: Instance, manifest: Manifest, sets: list[str]) -> dict[str, Any]:
    allocations = await opened.every(ALLOCATION_LIST)
    given = values.build(manifest, sets, lambda named: lookup.pick_allocation(allocations, named).allocation_id)
    return {**found.inputs, **given}
