"""`gpuaas stop`, `start`, `restart`, `rollback`: one form, four verbs. Each verb is a command of its own."""

import typer
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.instances import RESTART, ROLLBACK, START, STOP, ChangeInstance
from gpuaas_contract.operations import Operation

from gpuaas_cli.client import session
from gpuaas_cli.runner import run
from gpuaas_cli.runner.options import Detach, DryRun, Force, InstanceName, Reason, check_force
from gpuaas_cli.work import operations


def _command(verb: str, endpoint: Endpoint[ChangeInstance, Operation], meaning: str, example: str) -> typer.Typer:
    app = run.command_group()

    @run.command(app, verb, help=f"{meaning}\n\nExample: gpuaas {verb} {example}")
    def change(
        context: typer.Context,
        instance: InstanceName,
        reason: Reason = "",
        force: Force = False,
        detach: Detach = False,
        dry_run: DryRun = False,
    ) -> int:
        check_force(force, reason, f"gpuaas {verb} {instance}")
        body = ChangeInstance(reason=reason, force=force)

        async def work(opened: session.Session) -> int:
            operation = await opened.call(endpoint, body, dry_run=dry_run, instance_id=instance)
            about = f"{len(operation.targets)} members"
            return await operations.finish(opened, operation, about=about, detach=detach, dry_run=dry_run)

        return session.run(run.flags_of(context), work)

    return app


stop = _command(
    "stop",
    STOP,
    "Stop an app on every machine. Members, machines and data stay; what runs in it ends.",
    'slurm --reason "power maintenance"',
)
start = _command("start", START, "Start a stopped app.", "slurm")
restart = _command("restart", RESTART, "Stop an app and start it again.", "slurm --dry-run")
rollback = _command(
    "rollback",
    ROLLBACK,
    "Go back to the version before the last upgrade, where the app allows it.",
    'slurm --reason "jobs crash"',
)
