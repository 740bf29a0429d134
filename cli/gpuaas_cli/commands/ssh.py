"""`gpuaas ssh`: log in to a machine, or run one command on it."""

from typing import Annotated

import typer

from gpuaas_cli import machine_login, running, session

app = running.command_group()


@running.command(app)
def ssh(
    context: typer.Context,
    machine: Annotated[str, typer.Argument(metavar="ALLOCATION|NODE|INSTANCE")],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
) -> int:
    """Log in with a certificate that lasts ten minutes and a pinned host key. An instance means its login machine.

    Words after -- are the command; its exit status becomes ours.

    Example: gpuaas ssh slurm

    Example: gpuaas ssh gpu-2 -- nvidia-smi
    """
    machine_login.require_ssh()

    async def work(opened: session.Session) -> int:
        allocation_id = await machine_login.find(opened, machine)
        with machine_login.prepared() as folder:
            login = await machine_login.ask(opened, allocation_id, folder)
            return machine_login.run(login, command or [], tty=tty)

    return session.run(running.flags_of(context), work)
