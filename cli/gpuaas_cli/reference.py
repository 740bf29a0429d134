"""The reference page of the commands, made from their own help and from `reach`.

`python -m gpuaas_cli.reference --write docs/reference/cli.md`"""

import sys
from typing import Any

from gpuaas_contract import golden, registry

from gpuaas_cli import failures
from gpuaas_cli.flags import HELP
from gpuaas_cli.runner import reach

_HEAD = """# Commands

Made from the commands themselves; after a change there: `make contract`. `gpuaas COMMAND --help` has arguments, options
and examples; `gpuaas explain RESOURCE` shows the fields of a thing, `gpuaas schema ENDPOINT` what a call takes and
answers. Both work offline.

{flags}

`GPUAAS_HOME`, `GPUAAS_SERVER`, `GPUAAS_TOKEN`, `GPUAAS_PROJECT` and `GPUAAS_CONTEXT` are used where the flag is not
given; flags come first, then the environment, then what `gpuaas login` stored. Data goes to stdout, messages and
progress to stderr. Secrets
are asked for or read from stdin, never taken from the command line.

| exit code | meaning |
|---|---|
{codes}
"""
_CODES = {
    failures.OK: "done",
    failures.FAILED: "it failed, or the answer is no",
    failures.SERVER: "no answer in time, or an internal error of the server",
    failures.AUTH: "not signed in, or not permitted",
    failures.NOT_FOUND: "not found, or you have no access to it",
    failures.CONFLICT: "its state forbids it, it was changed by another since, or the name is ambiguous",
    failures.USAGE: "the command line is wrong; nothing was sent",
    failures.DETACHED: "interrupted; what runs on the platform continues",
}


def page() -> str:
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in _CODES.items())
    parts = [_HEAD.format(flags=HELP, codes=codes)]
    leaves = list(reach.leaves())
    for title in dict.fromkeys(title for title, _, _ in leaves):
        rows = [_row(words, command) for of_title, words, command in leaves if of_title == title]
        parts += [f"## {title}\n", "| `gpuaas` | does | endpoints |", "|---|---|---|", *rows, ""]
    reasons = [f"| `{name}` | {why} |" for name, why in reach.UNREACHED.items()]
    return "\n".join([*parts, "## Endpoints without a command\n", "| endpoint | why |", "|---|---|", *reasons, ""])


def _row(words: str, command: Any) -> str:
    meaning = " ".join(command.help.split("\n\n")[0].split()).replace("|", "\\|")
    every = {endpoint.name: reach.commands().get(endpoint.name, ()) for endpoint in registry.ENDPOINTS}
    reached = [name for name, commands in every.items() if any(_is_under(words, item) for item in commands)]
    return f"| `{words}` | {meaning} | {', '.join(f'`{name}`' for name in reached)} |"


def _is_under(words: str, command: str) -> bool:
    """Whether the words are the command, or `get`, which has a word for each kind."""
    return words == command or (words == "get" and command.startswith("get "))


if __name__ == "__main__":
    sys.exit(golden.main("the commands", lambda _: page()))
