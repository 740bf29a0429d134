"""`gpuaas up` and `gpuaas down`."""

import os
import sys
from typing import Annotated

import typer

from gpuaas_cli import failures
from gpuaas_cli.client import home
from gpuaas_cli.local import cloud, plan
from gpuaas_cli.runner import run


@run.alone()
def up(
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Machines.")] = 3,
    app_slug: Annotated[str, typer.Option("--app", help="App to deploy.")] = "slurm",
    lab: Annotated[str, typer.Option(help="Name of the lab; each has its own data.")] = "local",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the server on 127.0.0.1.")] = 7070,
    deploy: Annotated[bool, typer.Option(help="Deploy the app; without, its controller waits for yours.")] = True,
    control_plane_only: Annotated[
        bool, typer.Option("--control-plane-only", help="No machines; needs no root.")
    ] = False,
) -> int:
    """Start a GPU cloud on this host: machines, server, and an app that is proven to work. Everything keeps running in
    the background; a second run does only what is missing.

    Example: gpuaas up --nodes 3
    """
    if sys.platform != "linux":
        raise failures.Failure("gpuaas up needs Linux", fix="gpuaas login --server URL", code="not_linux")
    folder = home.folder(os.environ).absolute()
    return cloud.up(plan.Wish(folder, nodes, app_slug, lab, port, deploy, control_plane_only))


@run.alone()
def down(
    purge: Annotated[bool, typer.Option("--purge", help="Also delete machines and data.")] = False,
    lab: Annotated[str, typer.Option(help="Name of the lab.")] = "local",
) -> None:
    """Stop the local cloud. Data stays, so that gpuaas up continues where this ended.

    Example: gpuaas down --purge
    """
    cloud.down(plan.Wish(home.folder(os.environ).absolute(), lab=lab), purge=purge)
