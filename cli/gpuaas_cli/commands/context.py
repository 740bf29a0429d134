"""`gpuaas context`: the servers that this person has signed in to.

gpuaas context
    A context is a server with your session and your current project. gpuaas login and gpuaas up store one. Commands use
    the current one, unless the flag --context or GPUAAS_CONTEXT names another.
gpuaas context list
    List the contexts that are stored here, with the current one marked. Tokens are not shown.
gpuaas context use prod
    Make a context the current one.
    name NAME
"""

import os

import msgspec

from gpuaas_cli import failures, output
from gpuaas_cli.client import home
from gpuaas_cli.output import table
from gpuaas_cli.runner import Call, Command


class ShownContext(msgspec.Struct):
    """A stored context, without its token."""

    name: str
    current: bool
    server: str
    project_id: str
    signed_in: bool


_COLUMNS = "CONTEXT=name CURRENT SERVER PROJECT=project_id SIGNED_IN"
_TABLE = table(_COLUMNS, CURRENT=lambda row: "*" if row.current else "")


def _list(call: Call) -> None:
    config = home.load(home.folder(os.environ))
    current = home.chosen(call.flags, os.environ, config)
    rows = [
        ShownContext(name, name == current, item.server, item.project_id, bool(item.token))
        for name, item in config.contexts.items()
    ]
    output.show(call.flags, rows, _TABLE)
    server = call.flags.server or os.environ.get("GPUAAS_SERVER", "")
    if server and current in config.contexts and server.rstrip("/") != config.contexts[current].server:
        output.talk(f"Commands use {server}, because of --server or GPUAAS_SERVER, and no context.")


def _use(call: Call) -> None:
    folder, name = home.folder(os.environ), call["name"]
    known = home.load(folder).contexts
    if name not in known:
        hint = failures.hint(name, known) or f"; there is {', '.join(known) or 'none yet'}"
        raise failures.not_found(f"There is no context {name!r}{hint}", "gpuaas context list")
    home.set_context(folder, name, known[name])
    output.talk(f"The current context is {name} ({known[name].server}).")
    if os.environ.get("GPUAAS_CONTEXT", name) != name:
        output.talk(f"In this shell, GPUAAS_CONTEXT={os.environ['GPUAAS_CONTEXT']} still takes precedence.")


COMMANDS = {"context list": Command(offline=_list), "context use": Command(offline=_use)}
