"""`gpuaas operator`: whose controller works on an instance."""

from typing import Annotated

import typer
from gpuaas_contract.instances import OPERATOR_SET, Instance, SetOperator

from gpuaas_cli import failures, kinds
from gpuaas_cli.client import lookup, session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import DryRun, InstanceName, NeededReason

app = run.command_group()


@app.callback()
def operator() -> None:
    """The operator of an instance is the service account whose controller may work on it."""


@run.command(app, "set")
def set_operator(
    context: typer.Context,
    instance: InstanceName,
    reason: NeededReason,
    account: Annotated[str, typer.Argument(metavar="SERVICE_ACCOUNT", help="Name or id.")] = "",
    anybody: Annotated[bool, typer.Option("--any", help="Any service account of the project.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Hand an instance to another service account; open operations go with it.

    Example: gpuaas operator set slurm slurm-controller-2 --reason "the old host is gone"

    Example: gpuaas operator set slurm --any --reason "whoever comes first"
    """
    if bool(account) == anybody:
        raise failures.usage("Name a service account, or say --any", "gpuaas get service-accounts")

    async def work(opened: session.Session) -> Instance:
        found = await lookup.instance(opened, instance)
        account_id = (await lookup.service_account(opened, account)).service_account_id if account else ""
        body = SetOperator(operator_service_account_id=account_id, reason=reason)
        return await opened.call(OPERATOR_SET, body, dry_run=dry_run, instance_id=found.instance_id)

    flags = run.flags_of(context)
    kinds.show_one(flags, "instances", session.run(flags, work))
    return failures.OK
