"""Commands and their promised output, read from the `console` blocks of a page, and the files that readers write."""

import re
from dataclasses import dataclass, field

_FILE = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Command:
    line: str
    promised: list[str] = field(default_factory=list)

    def missing(self, output: str) -> str:
        """The first promised line that the output does not have in its place; empty if it has all of them."""
        lines = iter([" ".join(line.split()) for line in output.splitlines()])
        for promise in self.promised:
            pattern = _pattern(promise)
            if not any(pattern.fullmatch(line) for line in lines):
                return promise
        return ""


def commands_of(page: str) -> list[Command]:
    """Lines after `$ ` are commands; the others are output of the command above. A line `…` allows any lines."""
    commands: list[Command] = []
    for block in _BLOCK.findall(page):
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append(Command(line.removeprefix("$ ")))
            elif line.strip() not in ("", "…"):
                commands[-1].promised.append(line)
    return commands


def files_of(page: str) -> dict[str, str]:
    """Return the content of each `python` block that begins with a comment of a path, by this path."""
    return dict(_FILE.findall(page))


def _pattern(promise: str) -> re.Pattern[str]:
    """`…` matches any text, also none; a blank matches any number of blanks."""
    escaped = re.escape(" ".join(promise.split()))
    return re.compile(escaped.replace(r"\ …", r"(?: .*)?").replace("…", ".*"))
