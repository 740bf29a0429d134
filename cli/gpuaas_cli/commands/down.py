"""`gpuaas down`."""

import os
from typing import Annotated

import typer

from gpuaas_cli import home, running
from gpuaas_cli.local import cloud

app = running.command_group()


@running.command(app)
def down(
    purge: Annotated[bool, typer.Option("--purge", help="Also delete machines and data.")] = False,
    lab: Annotated[str, typer.Option(help="Name of the lab.")] = "local",
) -> int:
    """Stop the local cloud. Data stays, so that gpuaas up goes on where this ended.

    Example: gpuaas down --purge
    """
    return cloud.down(home.folder(os.environ).absolute(), lab, purge=purge)
