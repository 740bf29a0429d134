"""The flags that every command accepts. `main` removes them before the command parses its own arguments."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuaas_cli import failures

OUTPUTS = ("table", "wide", "json", "yaml", "name")
HELP = (
    "Everywhere: -o table|wide|json|yaml|name · --project NAME · --context NAME · --server URL · --ca-file FILE · "
    "--no-input"
)

_NAMES = ("output", "project", "context", "server", "ca_file")
_TAKES_VALUE = {"-o": "output", **{f"--{name.replace('_', '-')}": name for name in _NAMES}}


@dataclass(frozen=True)
class Flags:
    output: str = "table"
    project: str = ""
    context: str = ""
    server: str = ""
    ca_file: str = ""
    no_input: bool = False

    @property
    def structured(self) -> bool:
        """Whether stdout is for a program; then messages for users go to stderr."""
        return self.output in ("json", "yaml", "name")

    @property
    def structured_whole(self) -> bool:
        """Whether the output is the complete records of the API."""
        return self.output in ("json", "yaml")


def take(argv: Sequence[str]) -> tuple[Flags, list[str]]:
    """Return the common flags and the remaining words. Words after `--` are not parsed."""
    given: dict[str, Any] = {}
    left: list[str] = []
    words = iter(argv)
    for word in words:
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word == "--":
            left += [word, *words]
        elif flag == "--no-input":
            given["no_input"] = True
        elif flag in _TAKES_VALUE:
            given[_TAKES_VALUE[flag]] = value if has_value else next(words, None)
            if not given[_TAKES_VALUE[flag]]:
                raise failures.usage(f"{flag} needs a value", "gpuaas --help")
        else:
            left.append(word)
    return Flags(**given), left


def check(flags: Flags) -> None:
    if flags.output not in OUTPUTS:
        raise failures.usage(f"-o takes {', '.join(OUTPUTS)}, not {flags.output!r}", "gpuaas --help")
