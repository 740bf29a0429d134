"""`gpuaas ssh`: log in to a machine, or run one command on it."""

from typing import Annotated

import typer

from gpuaas_cli.client import session
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def ssh(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="ALLOCATION|NODE|INSTANCE")],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
) -> int:
    """Log in with a certificate that lasts ten minutes and a pinned host key. An instance means its login machine.

    Words after -- are the command; its exit status becomes ours.

    Example: gpuaas ssh slurm

    Example: gpuaas ssh gpu-2 -- nvidia-smi
    """
    machine.require_ssh()

    async def work(opened: session.Session) -> int:
        allocation_id = await machine.find(opened, target)
        with machine.prepared() as folder:
            login = await machine.ask(opened, allocation_id, folder)
            return machine.run(login, command or [], tty=tty)

    return session.run(run.flags_of(context), work)
