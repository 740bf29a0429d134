"""`gpuaas login`: trade name and password for a token and remember it in a context."""

import asyncio
import os
from typing import Annotated

import typer

from gpuaas_cli import asking, failures, home, output, running, session

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
        name = asking.name(flags, "gpuaas login")
    ca_file = flags.ca_file or (known.ca_file if known else "")
    target = home.Target(context_name, server.rstrip("/"), "", "", ca_file)
    found = asyncio.run(session.sign_in(target, name, asking.password(flags, name, "gpuaas login")))
    home.set_context(folder, context_name, found)
    output.talk(f"Signed in to {found.server} as {name} (context {context_name}).")
    if not found.project_id:
        output.talk("  next: gpuaas project use NAME, or gpuaas project create NAME --org ORG")
    return failures.OK
