"""The CLI covers the API: every endpoint for people is reached by a command, or has a reason why not."""

import importlib
import itertools
import pkgutil
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from gpuaas_cli import commands, flags, kinds
from gpuaas_cli.runner import manual, reach, run
from gpuaas_contract import registry
from msgspec import inspect as shapes

ROOT = Path(__file__).parents[2]
FOR_PEOPLE = {endpoint.name for endpoint in registry.ENDPOINTS if endpoint.audience != "node"}
LOCAL = {"up", "down", "explain", "schema", "get", "app init", "app conformance", "artifact signature"}
LOCAL |= {"context list", "context use"}
LEAVES = {words: command for _, words, command in reach.leaves()}


def test_every_endpoint_for_people_has_a_command_or_a_reason() -> None:
    unreached = FOR_PEOPLE - set(reach.commands()) - set(reach.UNREACHED)
    assert not unreached, "declare a command, or add the reason why there is none to reach.UNREACHED"


def test_no_reason_is_left_of_an_endpoint_that_is_gone_or_has_a_command() -> None:
    assert set(reach.UNREACHED) <= FOR_PEOPLE
    assert not set(reach.commands()) & set(reach.UNREACHED)


def _pages() -> list[str]:
    """The first example of each page in the manuals of the command modules."""
    modules = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    texts = [importlib.import_module(f"gpuaas_cli.commands.{name}").__doc__ or "" for name in modules]
    return [page.examples[0] for text in texts for page in manual.pages(text)]


@pytest.mark.parametrize("example", _pages())
def test_every_page_of_the_manual_belongs_to_a_command(example: str) -> None:
    typed = f"{example} ".removeprefix("gpuaas ")
    assert any(typed.startswith(f"{words} ") or f"{words} ".startswith(typed) for words in LEAVES)


@pytest.mark.parametrize("words", sorted(set(LEAVES) - LOCAL))
def test_every_command_names_the_endpoints_it_reaches(words: str) -> None:
    own, _ = run.endpoints_of(LEAVES[words].callback)
    assert own


@pytest.mark.parametrize("words", sorted(set(LEAVES) - LOCAL - {"login", "logout"}))
def test_every_change_can_be_rehearsed(words: str) -> None:
    own, _ = run.endpoints_of(LEAVES[words].callback)
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    asks = words in ("can-i", "policy explain", "ssh")
    assert ("--dry-run" in options) == (own[0].mutates and not asks)


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.plural)
def test_every_column_shows_an_attribute_of_its_kind(kind: kinds.Kind) -> None:
    for column in kind.table.columns:
        if isinstance(column.value, str):
            assert _has(kind.struct, column.value.split(".")), column.title


def _has(struct: Any, path: list[str]) -> bool:
    fields = {field.name: field.type for field in shapes.type_info(struct).fields}  # type: ignore[attr-defined]
    if path[0] not in fields:
        return False
    return len(path) == 1 or _has(fields[path[0]].cls, path[1:])


def _typed() -> list[tuple[str, str]]:
    pages = sorted((ROOT / "docs").rglob("*.md"))
    pattern = re.compile(r"^gpuaas (?!up\b|down\b|lab\b|server\b).*$", re.MULTILINE)
    return [(page.name, line) for page in pages for line in pattern.findall(page.read_text())]


@pytest.mark.parametrize(("page", "line"), _typed())
def test_every_command_in_the_docs_can_be_typed(page: str, line: str) -> None:
    """Those in shell blocks: the command exists and has each option."""
    words = shlex.split(line, comments=True)[1:]
    typed = " ".join(words)
    matching = [name for name in LEAVES if f"{typed} ".startswith(f"{name} ")]
    assert matching
    options = {
        option for parameter in LEAVES[matching[0]].params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    ours = itertools.takewhile(lambda word: word != "--", flags.take(words)[1])
    assert {word.partition("=")[0] for word in ours if word.startswith("--")} <= options
