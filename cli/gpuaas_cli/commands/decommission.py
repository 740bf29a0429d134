"""`gpuaas decommission`: tear an instance down."""

import sys
from typing import Annotated

import typer
from gpuaas_contract.instances import DECOMMISSION, Decommission

from gpuaas_cli import changing, failures, lookup, output, running, session
from gpuaas_cli.flags import Flags
from gpuaas_cli.options import Detach, DryRun, Force, InstanceName, Reason, check_force

app = running.command_group()


@running.command(app)
def decommission(
    context: typer.Context,
    instance: InstanceName,
    reason: Reason = "",
    force: Force = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    detach: Detach = False,
    dry_run: DryRun = False,
) -> int:
    """Take an app off every machine of an instance. The machines stay allocated.

    Example: gpuaas decommission slurm --reason "project ends"
    """
    check_force(force, reason, f"gpuaas decommission {instance}")
    flags = running.flags_of(context)
    body = Decommission(reason=reason, force=force)
    sure = yes or dry_run
    return session.run(flags, lambda opened: _work(opened, instance, body, sure=sure, detach=detach, dry_run=dry_run))


async def _work(
    opened: session.Session, named: str, body: Decommission, *, sure: bool, detach: bool, dry_run: bool
) -> int:
    found = await lookup.instance(opened, named)
    if not sure:
        _confirm(opened.flags, found.name, opened.target.server)
    operation = await opened.call(DECOMMISSION, body, dry_run=dry_run, instance_id=found.instance_id)
    about = f"{len(operation.targets)} members"
    return await changing.finish(opened, operation, about=about, detach=detach, dry_run=dry_run)


def _confirm(flags: Flags, name: str, server: str) -> None:
    """A terminal has a person before it; scripts said what they want by calling us."""
    if flags.no_input or not sys.stdin.isatty():
        return
    output.talk(f"This takes {name} off every machine ({server}). What runs in it ends with it.")
    print("Type the name of the instance to go on: ", end="", file=sys.stderr, flush=True)
    if input().strip() != name:
        raise failures.Failure("That is another name; nothing was changed", fix=f"gpuaas decommission {name}")
