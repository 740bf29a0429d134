"""The flags that every command takes. `main` takes them off the command line before the command sees the rest."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

OUTPUTS = ("table", "wide", "json", "yaml", "name")
HELP = (
    "Everywhere: -o table|wide|json|yaml|name · --project NAME · --context NAME · --server URL · --ca-file FILE · "
    "--no-input"
)

_TAKES_VALUE = {
    "-o": "output",
    "--output": "output",
    "--project": "project",
    "--context": "context",
    "--server": "server",
    "--ca-file": "ca_file",
}


class FlagError(Exception):
    """A flag without a value, or with one it does not know."""


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
        """The answer goes to stdout for a program, so all talk goes to stderr."""
        return self.output in ("json", "yaml", "name")

    @property
    def structured_whole(self) -> bool:
        """Programs get the records as the API has them."""
        return self.output in ("json", "yaml")


def take(argv: Sequence[str]) -> tuple[Flags, list[str]]:
    """The flags, and what is left. Nothing after `--` is ours."""
    given: dict[str, str | bool] = {}
    left: list[str] = []
    waiting = list(argv)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            left += [word, *waiting]
            break
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if flag == "--no-input":
            given["no_input"] = True
        elif flag in _TAKES_VALUE:
            if not has_value and not waiting:
                raise FlagError(f"{flag} needs a value")
            given[_TAKES_VALUE[flag]] = value if has_value else waiting.pop(0)
        else:
            left.append(word)
    return dataclasses.replace(Flags(), **given), left  # type: ignore[arg-type]


def check(flags: Flags) -> None:
    if flags.output not in OUTPUTS:
        raise FlagError(f"-o takes {', '.join(OUTPUTS)}, not {flags.output!r}")
