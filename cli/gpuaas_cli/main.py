"""The command `gpuaas`: find the command, run it, turn every end into an exit code.

Only the module of the command that was asked for is imported, so that help and short commands start at once."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from gpuaas_cli import VERSION, programs
from gpuaas_cli.flags import HELP, FlagError, Flags, check, take

# httpx brings a command of its own, which imports rich and pygments: 200 ms that no request needs.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

USAGE = 64

COMMANDS: dict[str, dict[str, tuple[str, str]]] = {
    "A cloud on this machine": {
        "up": ("up", "start a local GPU cloud with an app on it; again: only what is missing"),
        "down": ("down", "stop it; data stays unless --purge"),
    },
    "Look": {
        "get": ("get", "list things: instances, members, operations, nodes, allocations, apps, events…"),
        "describe": ("describe", "the whole story of an instance, an operation or a member"),
        "triage": ("triage", "everything that carries one correlation id, in time order"),
        "access": ("access", "how to use an app instance: endpoints, paths, commands"),
        "events": ("events", "follow what happens in a project, as it happens"),
        "usage": ("usage", "what was used: records, daily sums, CSV"),
        "whoami": ("whoami", "who you are and with which roles"),
        "explain": ("explain", "what a resource and its fields mean, and which commands act on it; works offline"),
        "schema": ("schema", "what the API takes and answers, endpoint by endpoint; works offline"),
    },
    "Run apps": {
        "deploy": ("deploy", "deploy an app on allocations and follow it"),
        "member": ("member", "add, drain, resume, remove or replace members of an instance"),
        "stop": ("life:stop", "stop an app; members, machines and data stay"),
        "start": ("life:start", "start a stopped app"),
        "restart": ("life:restart", "stop and start an app"),
        "upgrade": ("upgrade", "move an instance to another version of its app"),
        "rollback": ("life:rollback", "go back to the version before the last upgrade"),
        "decommission": ("decommission", "tear an instance down on every machine"),
        "op": ("op", "follow operations, wait for them, retry, cancel, and other ways out"),
        "action": ("action", "what an app lets you do with an instance"),
        "hold": ("hold", "keep a member from work or from removal for a while"),
        "role": ("role", "let a role take new members again after too many failed"),
        "operator": ("operator", "whose controller works on an instance"),
        "secret": ("secret", "values an app issued for its machines: list them, destroy them"),
        "ssh": ("ssh", "log in to a machine with a certificate of ten minutes"),
    },
    "Set up": {
        "login": ("login", "sign in to a server"),
        "logout": ("logout", "end your session and forget its token"),
        "password": ("password", "change your own password"),
        "session": ("sessions", "where you are signed in; end it"),
        "org": ("org", "create organisations"),
        "project": ("project", "create projects, choose the one to work in"),
        "service-account": ("service_account", "service accounts and their keys, from making to ending them"),
        "node": ("node", "admit nodes, look at them and their health, cordon, drain and retire them"),
        "agent": ("agent", "releases of the node agent; upgrade nodes one after another"),
        "allocation": ("allocation", "claim nodes for a project, choose who is on them, give them back"),
        "credential": ("credential", "private keys for hosts that know no other, kept in custody"),
        "ssh-key": ("ssh_key", "your own public keys"),
        "app": ("app", "register, show, publish, retire and entitle apps"),
        "artifact": ("artifact", "publish, verify, promote and revoke content; whose signatures count"),
    },
    "Who may do what": {
        "user": ("user", "create, disable and enable people, set their passwords"),
        "binding": ("binding", "who holds which role: give and take roles"),
        "policy": ("policy", "what is allowed where: show, narrow, explain"),
        "can-i": ("can_i", "whether you may do something, and what decides it"),
        "grant": ("grant", "who may enter machines now; end it"),
        "break-glass": ("break_glass", "temporary access to a project in an emergency, with a reason"),
        "custody": ("custody", "where secrets are kept; open them on a sealed server"),
        "audit": ("audit", "who did what, and who was refused"),
    },
    "Other programs": {
        "lab": ("", "machines on this host (gpuaas-lab)"),
        "server": ("", "the control plane (gpuaas-platform server)"),
    },
}
"""Title -> command -> where it is, `module` or `module:attribute`, and what it does."""
BEYOND = {"lab": ["gpuaas-lab"], "server": ["gpuaas-platform", "server"]}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    try:
        return _dispatch(argv)
    except FlagError as error:
        return _usage(str(error), "gpuaas --help")


def overview() -> str:
    lines = ["gpuaas - apps on GPU clouds", "", "Usage: gpuaas COMMAND [ARGUMENTS] [FLAGS]"]
    for title, commands in COMMANDS.items():
        lines += ["", title, *(f"  {name:<16} {text}" for name, (_, text) in commands.items())]
    lines += ["", HELP.replace(" · ", "  "), "", "First steps: gpuaas up      Help on a command: gpuaas COMMAND --help"]
    return "\n".join(lines)


def _dispatch(argv: Sequence[str]) -> int:
    flags, words = take(argv)
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview())
        return 0
    if words[0] == "--version":
        print(f"gpuaas {VERSION}")
        return 0
    command, rest = words[0], words[1:]
    modules = {name: module for group in COMMANDS.values() for name, (module, _) in group.items() if module}
    if command in modules:
        check(flags)
        return _run_module(modules[command], command, rest, flags)
    return _run_beyond(command, argv)


def _run_module(place: str, command: str, words: list[str], flags: Flags) -> int:
    running = importlib.import_module("gpuaas_cli.runner.run")
    module, _, attribute = place.partition(":")
    app = getattr(importlib.import_module(f"gpuaas_cli.commands.{module}"), attribute or "app")
    return int(running.run(app, f"gpuaas {command}", words, flags))


def _run_beyond(command: str, argv: Sequence[str]) -> int:
    """Like git: `gpuaas foo …` is `gpuaas-foo …` if there is such a program. It gets every word after its name."""
    program, *first = BEYOND.get(command, [f"gpuaas-{command}"])
    path = programs.find(program) if command and not command.startswith("-") and "/" not in command else None
    if path is None:
        names = [name for group in COMMANDS.values() for name in group]
        close = difflib.get_close_matches(command, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return _usage(f"there is no command {command!r}{hint}", "gpuaas --help")
    after = list(argv)[list(argv).index(command) + 1 :]
    os.execv(path, [path, *first, *after])  # noqa: S606 - the program takes over terminal, signals and exit code


def _usage(message: str, fix: str) -> int:
    print(f"ERROR: {message} (code=usage)\n  next: {fix}", file=sys.stderr)
    return USAGE
