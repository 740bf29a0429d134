"""Make the reference page of the commands from their help and from `reach`.

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


def page() -> str:
    codes = "\n".join(f"| {code} | {meaning} |" for code, meaning in failures.MEANINGS.items())
    parts = [_HEAD.format(flags=HELP, codes=codes)]
    leaves = list(reach.leaves())
    for title in dict.fromkeys(title for title, _, _ in leaves):
        rows = [_row(words, command) for of_title, words, command in leaves if of_title == title]
        parts += [f"## {title}\n", "| `gpuaas` | does | endpoints |", "|---|---|---|", *rows, ""]
    reasons = [f"| `{name}` | {why} |" for name, why in reach.UNREACHED.items()]
    return "\n".join([*parts, "## Endpoints without a command\n", "| endpoint | why |", "|---|---|", *reasons, ""])


def _row(words: str, command: Any) -> str:
    """Return the table row of a command. `get` is one command and lists the endpoints of `get nodes` and so on."""
    meaning = " ".join(command.help.split("\n\n")[0].split()).replace("|", "\\|")
    commands = {endpoint.name: reach.commands().get(endpoint.name, ()) for endpoint in registry.ENDPOINTS}
    reached = [name for name, lines in commands.items() if any(f"{line} ".startswith(f"{words} ") for line in lines)]
    return f"| `{words}` | {meaning} | {', '.join(f'`{name}`' for name in reached)} |"


if __name__ == "__main__":
    sys.exit(golden.main("the commands", lambda _: page()))
