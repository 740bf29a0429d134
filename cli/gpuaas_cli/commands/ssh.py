"""`gpuaas ssh`: log in to a machine, or run a command on it."""

from typing import Annotated

import typer
from gpuaas_contract.access import MACHINE_ACCESS
from gpuaas_contract.instances import ACCESS_BUNDLE_GET

from gpuaas_cli.client import machine, session
from gpuaas_cli.runner import run


@run.alone(MACHINE_ACCESS, ACCESS_BUNDLE_GET)
def ssh(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="ALLOCATION|NODE|INSTANCE")],
    command: Annotated[list[str] | None, typer.Argument(metavar="COMMAND")] = None,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the command a terminal.")] = False,
) -> int:
    """Log in with a certificate that lasts ten minutes and a pinned host key. An instance means its login machine.

    Words after -- are the command; its exit status becomes ours. A command in one word goes to the shell as it is.

    Example: gpuaas ssh slurm

    Example: gpuaas ssh gpu-2 -- nvidia-smi

    Example: gpuaas ssh gpu-2 -- 'df -h; free -g'
    """

    async def work(connection: session.Session) -> int:
        async with machine.entered(connection, target) as login:
            return machine.run(login, command or [], tty=tty)

    return session.run(run.flags_of(context), work)
