"""What people read: links of pages lead somewhere, and every command on a page or in a message can be typed."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpuaas_cli import flags, main
from gpuaas_cli.runner import reach

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("apps/*/docs/**/*.md")])
SOURCES = sorted(
    file
    for folder in ("*/gpuaas_*", "apps/*/gpuaas_*")
    for file in ROOT.glob(f"{folder}/**/*.py")
    if "gpuaas " in file.read_text()
)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"(?:^(?:\$ )?|`)gpuaas ([a-z][^`|;&)\n]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<=\s)--?[a-z][a-z-]*")
_IN_MESSAGE = re.compile(r"(?<![\w/.-])gpuaas ([a-z][^`|;&)'\n]*)")
NO_COMMANDS = ("custody ", "tls ", "credential delivery ", "describe shows ")
"""Labels of keys, and a command that prose names."""
_FLAGS = frozenset(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", flags.HELP))


def _named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _leads_nowhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or bool(anchor and anchor not in _anchors(target))


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text()) if not link.startswith("https://")]
    assert [link for link in links if _leads_nowhere(page, link)] == []


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_no_page_has_a_leftover_of_a_merge(page: Path) -> None:
    assert re.findall(r"^(?:<<<<<<<|>>>>>>>) .*$", page.read_text(), re.MULTILINE) == []


@pytest.fixture(scope="module")
def options_of() -> dict[str, set[str]]:
    """Every command that can be typed."""
    return {
        words: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for _, words, command in reach.leaves()
    }


def _flaw(typed: str, options_of: dict[str, set[str]]) -> str:
    """What is wrong with a printed command. After ` -- ` comes another program's line, after # a comment."""
    line = re.split(r"\s--\s|\s#", typed)[0]
    words = line.split()
    if words[0] in main.BEYOND:
        return ""  # another program's, with words of its own
    named = [" ".join(words[:size]) for size in (3, 2, 1)]
    command = next((name for name in named if name in options_of), None)
    if command is None:
        is_group = len(words) == 1 and any(name.startswith(f"{words[0]} ") for name in options_of)
        return "" if is_group else "no such command"
    unknown = set(_OPTION.findall(line)) - options_of[command] - _FLAGS
    return f"no option {', '.join(sorted(unknown))}" if unknown else ""


@pytest.mark.parametrize("page", PAGES, ids=_named)
def test_every_command_on_a_page_exists_with_its_options(page: Path, options_of: dict[str, set[str]]) -> None:
    typed = [line.strip() for line in _COMMAND.findall(page.read_text())]
    assert {line: flaw for line in typed if (flaw := _flaw(line, options_of))} == {}


@pytest.mark.parametrize("file", SOURCES, ids=_named)
def test_every_command_in_a_message_exists_with_its_options(file: Path, options_of: dict[str, set[str]]) -> None:
    typed = [line for text in _texts(ast.parse(file.read_text())) for line in _typed(text)]
    assert {line: flaw for line in typed if (flaw := _flaw(line, options_of))} == {}


def _texts(module: ast.Module) -> Iterator[str]:
    """Yield the texts of a module without its docstrings. What is known only when it runs is VALUE."""
    inner: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Expr):
            inner.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


def _typed(text: str) -> Iterator[str]:
    """Yield the commands of a message. Prose may follow one after a comma or a full stop."""
    for line in _IN_MESSAGE.findall(text):
        words = re.split(r"[,.]\s|[,.:]$", line)[0].strip()
        if not words.startswith(NO_COMMANDS) and "VALUE" not in " ".join(words.split()[:2]) and "--help" not in words:
            yield words


def test_the_glossary_defines_each_term_once() -> None:
    page = (ROOT / "docs/explanation/glossary.md").read_text().split("## Words with more than one meaning")[0]
    terms = re.findall(r"^\| ([^|]+?) \|", page, re.MULTILINE)
    defined = [term for term in terms if term not in ("term", "---")]
    assert sorted(defined) == sorted(set(defined))
