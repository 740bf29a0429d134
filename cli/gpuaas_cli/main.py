"""The entry point of `gpuaas`: find the command, run it, return its exit code.

Only the module of the requested command is imported, so that help and short commands start fast."""

import importlib
import os
import sys
from collections.abc import Collection, Sequence

from gpuaas_cli import VERSION, failures, overview, programs, terminal
from gpuaas_cli.flags import check, take

# httpx has a command-line module that imports rich and pygments. It takes 200 ms and no request needs it.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

BEYOND = {"lab": ["gpuaas-lab"], "server": ["gpuaas-platform", "server"]}


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str]) -> int:
    try:
        return _dispatch(argv)
    except failures.Failure as failure:
        terminal.talk(failures.text(failure, as_json=False))
        return failure.exit_code


def _dispatch(argv: Sequence[str]) -> int:
    flags, words = take(argv)
    command, *rest = words or ["--help"]
    places = {name: place for group in overview.COMMANDS.values() for name, (place, _) in group.items()}
    if command in ("--help", "-h", "help"):
        terminal.out(overview.page())
    elif command == "--version":
        terminal.out(f"gpuaas {VERSION}")
    elif places.get(command):
        check(flags)
        return int(importlib.import_module("gpuaas_cli.runner.run").run(places[command], command, rest, flags))
    else:
        _become(command, argv, places)
    return failures.OK


def _become(command: str, argv: Sequence[str], known: Collection[str]) -> None:
    """Run `gpuaas foo …` as the program `gpuaas-foo …` if it exists, like git, with all words after the name."""
    program, *first = BEYOND.get(command, [f"gpuaas-{command}"])
    path = programs.find(program) if command and not command.startswith("-") and "/" not in command else None
    if path is None:
        raise failures.usage(f"there is no command {command!r}{failures.hint(command, known)}", "gpuaas --help")
    after = list(argv)[list(argv).index(command) + 1 :]
    os.execv(path, [path, *first, *after])  # noqa: S606 - the program takes over terminal, signals and exit code
