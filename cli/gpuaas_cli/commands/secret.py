"""`gpuaas secret`: values an app's controller issued for its machines. Nobody reads them here, anybody with the right
ends them."""

from typing import Annotated

import typer
from gpuaas_contract.secrets import SECRET_REVOKE, RuntimeSecret

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import lookup, session
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun, InstanceName, Yes

app = run.command_group()


@app.callback()
def secret() -> None:
    """Secrets are issued by an app's controller, opened once on its machines, and never shown."""


@run.command(app, "list")
def list_secrets(
    context: typer.Context,
    instance: InstanceName,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also revoked and expired ones.")] = False,
) -> int:
    """Secrets of an instance, never their values.

    Example: gpuaas secret list slurm
    """
    kinds.list_all(run.flags_of(context), "secrets", kinds.Filters(instance=instance, everything=everything))
    return failures.OK


@run.command(app)
def revoke(
    context: typer.Context,
    instance: InstanceName,
    secret: Annotated[str, typer.Argument(metavar="SECRET", help="Id, or a name only one has.")],
    yes: Yes = False,
    dry_run: DryRun = False,
) -> int:
    """Destroy a secret's value; deliveries that were not opened yet are void.

    Example: gpuaas secret revoke slurm munge-key
    """

    async def work(opened: session.Session) -> RuntimeSecret:
        found = await lookup.secret(opened, instance, secret)
        if not (yes or dry_run):
            consequence = f"This destroys the value of {found.name} for {instance}. No machine can fetch it again."
            again = f"gpuaas secret revoke {instance} {secret}"
            ask.confirm(opened.flags, consequence, name=found.name, what="secret", again=again)
        return await opened.call(
            SECRET_REVOKE, dry_run=dry_run, instance_id=found.instance_id, secret_id=found.secret_id
        )

    flags = run.flags_of(context)
    kinds.show_one(flags, "secrets", session.run(flags, work))
    return failures.OK
