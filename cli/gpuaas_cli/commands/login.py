"""`gpuaas login`: trade name and password for a token and remember it in a context."""

import asyncio
import getpass
import os
import sys
from typing import Annotated

import typer

from gpuaas_cli import failures, home, output, running, session
from gpuaas_cli.flags import Flags

app = running.command_group()


@running.command(app)
def login(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Your name on the server.")] = "",
) -> int:
    """Sign in. The password is asked for, or read from stdin; never give it on the command line.

    Example: gpuaas login --server http://127.0.0.1:7070 --name admin
    """
    flags = running.flags_of(context)
    folder = home.folder(os.environ)
    config = home.load(folder)
    context_name = flags.context or os.environ.get("GPUAAS_CONTEXT", "") or config.current or "default"
    known = config.contexts.get(context_name)
    server = flags.server or os.environ.get("GPUAAS_SERVER", "") or (known.server if known else "")
    if not server:
        raise failures.usage("No server was named", "gpuaas login --server http://127.0.0.1:7070 --name admin")
    if not name:
        name = _ask_name(flags)
    ca_file = flags.ca_file or (known.ca_file if known else "")
    target = home.Target(context_name, server.rstrip("/"), "", "", ca_file)
    found = asyncio.run(session.sign_in(target, name, _password(flags, name)))
    home.set_context(folder, context_name, found)
    output.talk(f"Signed in to {found.server} as {name} (context {context_name}).")
    if not found.project_id:
        output.talk("  next: gpuaas project use NAME, or gpuaas project create NAME --org ORG")
    return failures.OK


def _ask_name(flags: Flags) -> str:
    if flags.no_input or not sys.stdin.isatty():
        raise failures.usage("No name was given", "gpuaas login --name NAME")
    return input("Name: ").strip()


def _password(flags: Flags, name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    if flags.no_input:
        raise failures.usage("There is no password on stdin, and --no-input forbids asking", "gpuaas login < FILE")
    return getpass.getpass(f"Password of {name}: ")
