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
        parts.append("\n".join([f"## {title}", "", "| `gpuaas` | does | endpoints |", "|---|---|---|", *rows, ""]))
    reasons = [f"| `{name}` | {why} |" for name, why in reach.UNREACHED.items()]
    parts.append("\n".join(["## Endpoints without a command", "", "| endpoint | why |", "|---|---|", *reasons, ""]))
    return "\n".join(parts)


def _row(words: str, command: Any) -> str:
    meaning = " ".join(command.help.split("\n\n")[0].split()).replace("|", "\\|")
    reached = [endpoint.name for endpoint in registry.ENDPOINTS if _reaches(words, endpoint.name)]
    return f"| `{words}` | {meaning} | {', '.join(f'`{name}`' for name in reached)} |"


def _reaches(words: str, endpoint_name: str) -> bool:
    reached = reach.commands().get(endpoint_name, ())
    return words in reached or (words == "get" and any(item.startswith("get ") for item in reached))


def run() -> int:
    return golden.main("the commands", lambda _: page())


if __name__ == "__main__":
    sys.exit(run())
