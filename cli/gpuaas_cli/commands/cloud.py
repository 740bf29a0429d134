"""`gpuaas up` and `gpuaas down`.

gpuaas up --nodes 3
    Start a GPU cloud on this host: machines, server, and an app that is proven to work. Everything keeps running in
    the background; a second run does only what is missing.
    --nodes: Machines.
    --app: App to deploy.
    --lab: Name of the local cloud; clouds with different names have separate data.
    --port: Port of the server on 127.0.0.1; the web console has the next one.
    deploy --deploy/--no-deploy: Deploy the app, or only start its controller so that you can deploy it.
    --toolchain: New machines have gcc, git, Open MPI, pip and venv. They have no route to the internet to install them.
    --control-plane-only: Start only the server, without machines. Needs no root.
gpuaas down --purge
    Stop the local cloud that you use. Its data stays: gpuaas up starts it again.
    --purge: Also delete the machines and all data of the local cloud.
    --lab: Name of the local cloud to stop; by default the one of the current context. If the current context is no
    cloud on this machine, name it.
"""

import os
import re
import sys

from msgspec.inspect import IntType

from gpuaas_cli import failures
from gpuaas_cli.client import home
from gpuaas_cli.local import choice, cloud, plan
from gpuaas_cli.runner import SWITCH, Call, Command, Field

_LAB = re.compile(r"[a-z][a-z0-9]{0,15}")


def _check_lab(name: str) -> None:
    if not _LAB.fullmatch(name):
        message = f"{name!r} is no name of a lab: it has a lower-case letter, then up to 15 letters or digits"
        raise failures.usage(message, "gpuaas up --lab local")


def _up(call: Call) -> int:
    _check_lab(call["lab"])
    if sys.platform != "linux":
        raise failures.Failure("gpuaas up needs Linux", fix="gpuaas login --server URL", code="not_linux")
    return cloud.up(plan.CloudRequest(home.folder(os.environ).absolute(), **call.values))


def _down(call: Call) -> None:
    folder = home.folder(os.environ).absolute()
    lab = call["lab"] or choice.current(folder, call.flags, os.environ)
    _check_lab(lab)
    cloud.down(plan.CloudRequest(folder, lab=lab), purge=call["purge"])


COMMANDS = {
    "up": Command(
        offline=_up,
        extra={
            "nodes": Field(type=IntType(ge=1, le=64), default=3),
            "app": Field(default="slurm"),
            "lab": Field(default="local"),
            "port": Field(type=IntType(ge=1, le=65535), default=7070),
            "deploy": Field(type=bool, default=True),
            "toolchain": SWITCH,
            "control_plane_only": SWITCH,
        },
    ),
    "down": Command(offline=_down, extra={"purge": SWITCH, "lab": Field(default="")}),
}
