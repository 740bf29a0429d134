"""The command `gpuaas`: find the command, run it, turn every end into an exit code.

Only the module of the command that was asked for is imported, so that help and short commands start at once."""

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from gpuaas_cli import VERSION, overview, programs
from gpuaas_cli.flags import FlagError, check, take
from gpuaas_cli.overview import COMMANDS

# httpx brings a command of its own, which imports rich and pygments: 200 ms that no request needs.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

USAGE = 64

BEYOND = {"lab": ["gpuaas-lab"], "server": ["gpuaas-platform", "server"]}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    try:
        return _dispatch(argv)
    except FlagError as error:
        return _usage(str(error), "gpuaas --help")


def _dispatch(argv: Sequence[str]) -> int:
    flags, words = take(argv)
    if not words or words[0] in ("--help", "-h", "help"):
        print(overview.page())
        return 0
    if words[0] == "--version":
        print(f"gpuaas {VERSION}")
        return 0
    command, rest = words[0], words[1:]
    modules = {name: module for group in COMMANDS.values() for name, (module, _) in group.items() if module}
    if command in modules:
        check(flags)
        return int(importlib.import_module("gpuaas_cli.runner.run").run(modules[command], command, rest, flags))
    return _run_beyond(command, argv)


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
