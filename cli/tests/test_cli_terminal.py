"""Text from machines, apps and servers cannot send commands to the terminal, in any way it is printed."""

import ast
import io
import json
from collections.abc import Iterator
from pathlib import Path

import gpuaas_cli
import pytest
import yaml
from gpuaas_cli import output, terminal
from gpuaas_cli.flags import Flags
from gpuaas_cli.show import story
from gpuaas_cli.work.console import CleanConsole
from rich.text import Text
from rich.tree import Tree

HOSTILE = "\x1b[2J \x9b31m \x07 \x08 \r \x7f \x90 \x85 \u202e \u2066 \u2028 \U000e0001 \udcff"
"""Clear the screen, a colour by a C1 character, bell, backspace, line starts, direction marks and more."""
PACKAGE = Path(gpuaas_cli.__file__).parent
WRITER = "terminal.py"
CONSOLE = "work/console.py"


def test_everything_that_is_written_is_clean(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.out(HOSTILE)
    terminal.talk(HOSTILE)
    captured = capsys.readouterr()
    for printed in captured:
        assert _commands(printed) == ""
        assert printed.count("�") == sum(not char.isprintable() for char in HOSTILE)


def test_text_of_any_language_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.out("Grüße 你好 😀\n\tnext line")
    assert capsys.readouterr().out == "Grüße 你好 😀\n\tnext line\n"


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_a_record_is_clean_and_has_the_same_values(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"message": HOSTILE[:-1], "key\x9b": ["\u202e", "Grüße"]}
    output.show_data(Flags(output=form), record)
    printed = capsys.readouterr().out
    assert _commands(printed) == ""
    assert "�" not in printed
    assert (json.loads if form == "json" else yaml.safe_load)(printed) == record


def test_json_without_such_characters_stays_readable() -> None:
    assert "Grüße 你好 😀" in output.encoded("json", {"a": "Grüße 你好 😀"})


def test_half_a_surrogate_pair_is_printed_as_an_escape() -> None:
    assert json.loads(output.encoded("json", {"a": "\udcff\U000e0001"})) == {"a": "\udcff\U000e0001"}


def test_a_live_view_is_clean_and_still_has_its_colours() -> None:
    console = CleanConsole()
    console.file = written = io.StringIO()
    tree = Tree(Text(HOSTILE[:-1], style="bold"))
    tree.add(Text(HOSTILE[:-1]))
    console.print(tree)
    assert _commands(written.getvalue()) == ""


def test_a_line_break_in_a_text_cannot_look_like_a_line_of_the_cli() -> None:
    lines = "\n".join(story.section("Error", ["failed\n\nNext\n  gpuaas decommission lab"])).splitlines()
    assert [line for line in lines if line and not line.startswith("  ")] == ["Error"]


@pytest.mark.parametrize("module", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_one_module_writes_to_the_terminal(module: Path) -> None:
    """Every command prints through `terminal`, so a new command is as safe as the others."""
    name = str(module.relative_to(PACKAGE))
    writes = [f"{name}:{line}: {what}" for line, what in _writes(ast.parse(module.read_text()))]
    if name == WRITER:
        assert writes
    elif name == CONSOLE:
        assert all("Console" in line for line in writes)
    else:
        assert not writes, "print with gpuaas_cli.terminal, or draw with gpuaas_cli.work.console"


def _commands(printed: str) -> str:
    """Return what does not print, without line breaks, tabs and the replacement."""
    return "".join(char for char in printed if not char.isprintable() and char not in "\n\t")


def _writes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    reads = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in READING}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "click.echo", "os.write"):
            yield node.lineno, ast.unparse(node.func)
        if isinstance(node, ast.Attribute) and ast.unparse(node) in STREAMS and id(node) not in reads:
            yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and any(alias.name == "Console" for alias in node.names):
            # As a type of a parameter it writes nothing; a call makes one.
            calls = [
                item for item in ast.walk(tree) if isinstance(item, ast.Call) and ast.unparse(item.func) == "Console"
            ]
            yield from ((call.lineno, "Console") for call in calls)


STREAMS = ("sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__")
READING = ("isatty", "fileno")
