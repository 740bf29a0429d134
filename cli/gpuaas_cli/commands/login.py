"""`gpuaas login`: trade what proves who you are for a token and remember it in a context."""

import asyncio
import os
from typing import Annotated

import typer

from gpuaas_cli import failures, output
from gpuaas_cli.client import home, session, sign_in
from gpuaas_cli.flags import Flags
from gpuaas_cli.input import ask
from gpuaas_cli.runner import run

app = run.command_group()


@run.command(app)
def login(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Your name on the server.")] = "",
    browser: Annotated[bool, typer.Option("--browser", help="Sign in through the server's identity provider.")] = False,
    key_file: Annotated[str, typer.Option(metavar="FILE", help="As a service account, with its key; - is stdin.")] = "",
) -> int:
    """Sign in. The password is asked for, or read from stdin; never give it on the command line.

    Example: gpuaas login --server http://127.0.0.1:7070 --name admin

    Example: gpuaas login --server https://gpuaas.example.com --browser
    """
    flags = run.flags_of(context)
    if sum(map(bool, (name, browser, key_file))) > 1:
        raise failures.usage("--name, --browser and --key-file exclude each other", "gpuaas login --help")
    folder = home.folder(os.environ)
    target = _target(flags, home.load(folder))
    prove = _proof(flags, name, key_file, browser=browser)
    found = asyncio.run(session.sign_in(target, prove))
    home.set_context(folder, target.context, found)
    output.talk(f"Signed in to {found.server}{f' as {name}' if name else ''} (context {target.context}).")
    if not found.project_id:
        output.talk("  next: gpuaas project use NAME, or gpuaas project create NAME --org ORG")
    return failures.OK


def _target(flags: Flags, config: home.Config) -> home.Target:
    context_name = flags.context or os.environ.get("GPUAAS_CONTEXT", "") or config.current or "default"
    known = config.contexts.get(context_name)
    server = flags.server or os.environ.get("GPUAAS_SERVER", "") or (known.server if known else "")
    if not server:
        raise failures.usage("No server was named", "gpuaas login --server http://127.0.0.1:7070 --name admin")
    ca_file = flags.ca_file or (known.ca_file if known else "")
    return home.Target(context_name, server.rstrip("/"), "", "", ca_file)


def _proof(flags: Flags, name: str, key_file: str, *, browser: bool) -> session.Prove:
    if browser:
        return sign_in.by_browser(flags)
    if key_file:
        return sign_in.by_key_file(key_file)
    name = name or ask.name(flags, "gpuaas login")
    return sign_in.by_password(name, ask.password(flags, name, "gpuaas login"))
