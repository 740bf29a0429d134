"""`gpuaas down`."""

import os
from typing import Annotated

import typer

from gpuaas_cli.client import home
from gpuaas_cli.local import cloud
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def down(
    purge: Annotated[bool, typer.Option("--purge", help="Also delete machines and data.")] = False,
    lab: Annotated[str, typer.Option(help="Name of the lab.")] = "local",
) -> int:
    """Stop the local cloud. Data stays, so that gpuaas up goes on where this ended.

    Example: gpuaas down --purge
    """
    return cloud.down(home.folder(os.environ).absolute(), lab, purge=purge)
