"""`gpuaas decommission`: tear an instance down."""

import typer
from gpuaas_contract.instances import DECOMMISSION, Decommission

from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, Force, InstanceName, Reason, Yes, check_force
from gpuaas_cli.work import operations

app = run.command_group()


@run.command(app)
def decommission(
    context: typer.Context,
    instance: InstanceName,
    reason: Reason = "",
    force: Force = False,
    yes: Yes = False,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Take an app off every machine of an instance. The machines stay allocated.

    Example: gpuaas decommission slurm --reason "project ends"
    """
    check_force(force, reason, f"gpuaas decommission {instance}")
    flags = run.flags_of(context)
    body = Decommission(reason=reason, force=force)
    sure = yes or dry_run
    return session.run(flags, lambda opened: _work(opened, instance, body, sure=sure, detach=detach, dry_run=dry_run))


async def _work(
    opened: session.Session, named: str, body: Decommission, *, sure: bool, detach: bool, dry_run: bool
) -> int:
    found = await lookup.instance(opened, named)
    if not sure:
        consequence = (
            f"This takes {found.name} off every machine ({opened.target.server}). What runs in it ends with it."
        )
        again = f"gpuaas decommission {found.name}"
        ask.confirm(opened.flags, consequence, name=found.name, what="instance", again=again)
    operation = await opened.call(DECOMMISSION, body, dry_run=dry_run, instance_id=found.instance_id)
    about = f"{len(operation.targets)} members"
    return await operations.finish(opened, operation, about=about, detach=detach, dry_run=dry_run)
