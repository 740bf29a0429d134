"""The reference page of the commands, made from their own help and from `reach`.

`python -m gpuaas_cli.reference --write docs/reference/cli.md`"""

import importlib
import sys
from collections.abc import Iterator
from typing import Any

import typer.main
from gpuaas_contract import golden

from gpuaas_cli import failures, main
from gpuaas_cli.flags import HELP
from gpuaas_cli.runner import reach

_HEAD = """# Commands

Made from the commands themselves; after a change there: `make contract`. `gpuaas COMMAND --help` has arguments, options
and examples; `gpuaas explain RESOURCE` says what a thing is made of, `gpuaas schema ENDPOINT` what a call takes and
answers. Both work offline.

{flags}

`GPUAAS_HOME`, `GPUAAS_SERVER`, `GPUAAS_TOKEN`, `GPUAAS_PROJECT` and `GPUAAS_CONTEXT` stand in for what is not given;
flags beat them, and they beat what `gpuaas login` remembered. Data goes to stdout, talk and progress to stderr. Secrets
are asked for or read from stdin, never taken from the command line.

| exit code | meaning |
|---|---|
{codes}
"""
_CODES = {
    failures.OK: "done",
    failures.FAILED: "it failed, or the answer is no",
    failures.SERVER: "no answer in time, or the server's own fault",
    failures.AUTH: "not signed in, or not permitted",
    failures.NOT_FOUND: "there is no such thing, or you may not see it",
    failures.CONFLICT: "its state forbids it, or somebody changed it meanwhile",
    failures.USAGE: "the command line is wrong; nothing was sent",
    failures.DETACHED: "interrupted; what runs on the platform goes on",
}


def leaves() -> Iterator[tuple[str, str, Any]]:
    """Title of its group, words and code of every command that can be typed."""
    for title, commands in main.COMMANDS.items():
        for name, (place, _) in commands.items():
            if place:
                module, _, attribute = place.partition(":")
                app = getattr(importlib.import_module(f"gpuaas_cli.commands.{module}"), attribute or "app")
                yield from ((title, words, command) for words, command in _below(name, typer.main.get_command(app)))


def page() -> str:
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in _CODES.items())
    parts = [_HEAD.format(flags=HELP, codes=codes)]
    found = list(leaves())
    for title in dict.fromkeys(title for title, _, _ in found):
        rows = [_row(words, command) for of_title, words, command in found if of_title == title]
        parts.append("\n".join([f"## {title}", "", "| `gpuaas` | does | endpoints |", "|---|---|---|", *rows, ""]))
    reasons = [f"| `{name}` | {why} |" for name, why in reach.UNREACHED.items()]
    parts.append("\n".join(["## Endpoints without a command", "", "| endpoint | why |", "|---|---|", *reasons, ""]))
    return "\n".join(parts)


def _below(words: str, command: Any) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
    for word, one in (inner or {}).items():
        yield from _below(f"{words} {word}", one)


def _row(words: str, command: Any) -> str:
    meaning = " ".join(command.help.split("\n\n")[0].split()).replace("|", "\\|")
    reached = [name for name, commands in reach.COMMANDS.items() if any(_is(one, words) for one in commands)]
    return f"| `{words}` | {meaning} | {', '.join(f'`{name}`' for name in reached)} |"


def _is(named: str, words: str) -> bool:
    return named == words or (words == "get" and named.startswith("get "))


def run() -> int:
    return golden.main("the commands", lambda _: page())


if __name__ == "__main__":
    sys.exit(run())
