"""Read the manual of commands from the docstring of their module. For example:

gpuaas hold place slurm gpu-2 --for 3d          one or more examples; the first one has the name of the command
    Place a hold on a member.                   help
    --name: What to call it.                    an option with the name of a request field
    ttl_s --for TIME: How long: 30m, 24h, 7d.   an option with another name
    user_id USER: Name or id.                   an argument
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_OPTION = re.compile(r"(?:([a-z_]+) )?((?:--[a-z][^:]*)|[A-Z][A-Z_|.[\]]*)(?:: (.*))?")


@dataclass(frozen=True)
class Page:
    """The manual of one command."""

    examples: tuple[str, ...] = ()
    help: str = ""
    options: tuple[tuple[str, str, str], ...] = ()
    """Field name, flag as in `Field.flag`, help text."""


def page(text: str | None, command: str) -> Page:
    """Return the page of a command; `command` has the words after `gpuaas`."""
    for result in pages(text or ""):
        if f"{result.examples[0]} ".startswith(f"gpuaas {command} "):
            return result
    raise LookupError(f"the docstring has no page for gpuaas {command}")


def pages(text: str) -> Iterator[Page]:
    """Yield the pages. Examples are not indented; the text of a page is."""
    for examples, lines in re.findall(r"((?:^gpuaas .*\n)+)((?:^(?: +.*)?\n)*)", text, re.MULTILINE):
        yield _page(examples.splitlines(), lines.splitlines())


def _page(examples: list[str], lines: list[str]) -> Page:
    options: list[tuple[str, str, str]] = []
    paragraphs: list[str] = [""]
    for line in map(str.strip, lines):
        if option := _OPTION.fullmatch(line):
            field, flag, help_text = option.groups("")
            options.append((field or flag.split()[0].removeprefix("--").replace("-", "_"), flag, help_text))
        elif options and line:
            field, flag, help_text = options[-1]
            options[-1] = (field, flag, f"{help_text} {line}")
        elif line:
            paragraphs[-1] = f"{paragraphs[-1]} {line}".strip()
        else:
            paragraphs.append("")
    return Page(tuple(examples), "\n\n".join(filter(None, paragraphs)), tuple(options))
