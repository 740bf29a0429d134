"""The CLI covers the API: every endpoint for people is reached by a command, or says why not."""

import dataclasses
import inspect
import itertools
import re
import shlex
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpuaas_cli import flags, kinds, reference
from gpuaas_cli.runner import reach
from gpuaas_contract import registry
from gpuaas_contract.endpoint import Endpoint

ROOT = Path(__file__).parents[2]
FOR_PEOPLE = {one.name for one in registry.ENDPOINTS if one.audience != "node"}
CLAIMS = [(name, command) for name, commands in reach.COMMANDS.items() for command in commands]
_OURS = ("gpuaas_cli", "gpuaas_sdk.client")


def test_every_endpoint_for_people_has_a_command_or_a_reason() -> None:
    unclaimed = FOR_PEOPLE - set(reach.COMMANDS) - set(reach.UNREACHED)
    assert not unclaimed, "build a command and name it in reach.COMMANDS, or say in reach.UNREACHED why there is none"


def test_no_row_is_left_of_an_endpoint_that_is_gone_or_has_both() -> None:
    assert set(reach.COMMANDS) | set(reach.UNREACHED) == FOR_PEOPLE
    assert not set(reach.COMMANDS) & set(reach.UNREACHED)


@pytest.mark.parametrize(("name", "command"), CLAIMS, ids=str)
def test_the_command_is_there_and_its_code_reaches_the_endpoint(name: str, command: str) -> None:
    assert registry.BY_NAME[name].name in reached_by(command), f"{command} has no way to {name}"


def test_every_command_that_calls_the_server_is_named() -> None:
    """A command nobody can find by `gpuaas explain` or `gpuaas schema` is one people do not know of."""
    named = {command.split()[0] if command.startswith("get ") else command for _, command in CLAIMS}
    local = {"up", "down", "explain", "schema"}
    composed = {"action list"}
    assert {command for command, _ in leaves()} - named - local - composed == set()


def test_every_command_in_the_docs_can_be_typed() -> None:
    """Those in shell blocks: the command is there and knows each option."""
    known = {words: command for _, words, command in reference.leaves()}
    for page in (ROOT / "docs").rglob("*.md"):
        for line in re.findall(r"^gpuaas (?!up\b|down\b|lab\b|server\b).*$", page.read_text(), re.MULTILINE):
            words = shlex.split(line, comments=True)[1:]
            typed = " ".join(words)
            found = [name for name in known if f"{typed} ".startswith(f"{name} ")]
            assert found, f"{page.name}: {line}"
            options = {option for one in known[found[0]].params for option in (*one.opts, *one.secondary_opts)}
            ours = itertools.takewhile(lambda word: word != "--", flags.take(words)[1])
            unknown = {word.partition("=")[0] for word in ours if word.startswith("--")} - options
            assert not unknown, f"{page.name}: {line}"


def reached_by(command: str) -> set[str]:
    """Names of the endpoints that the code behind a command refers to, however deep in our own modules."""
    if command.startswith("get "):
        kind = kinds.find(command.removeprefix("get "))
        assert kind is not None, f"gpuaas {command}: there is no such kind"
        return _endpoints([kind.fetch, *([kind.find] if kind.find else [])])
    found = dict(leaves())
    assert command in found, f"there is no command gpuaas {command}"
    return _endpoints([found[command]])


def leaves() -> Iterator[tuple[str, Callable[..., Any]]]:
    return ((words, inspect.unwrap(command.callback)) for _, words, command in reference.leaves())


def _endpoints(start: list[Any]) -> set[str]:
    found: set[str] = set()
    seen: set[int] = set()
    kept: list[Any] = []
    waiting = list(start)
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        kept.append(one)
        if isinstance(one, Endpoint):
            found.add(one.name)
        else:
            waiting += _referred(one)
    return found


def _referred(one: Any) -> Iterator[Any]:
    """What an object of ours can lead to: a function to what it names, a table to its values."""
    if isinstance(one, types.FunctionType) and one.__module__.startswith(_OURS):
        yield from _named_in(one.__code__, one.__globals__)
        yield from (cell.cell_contents for cell in one.__closure__ or ())
    elif isinstance(one, dict):
        yield from one.values()
    elif isinstance(one, list | tuple | set | frozenset):
        yield from one
    elif hasattr(one, "func") and hasattr(one, "args"):
        yield one.func
    elif dataclasses.is_dataclass(one) and not isinstance(one, type | kinds.Kind):
        yield from vars(one).values()


def _named_in(code: types.CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """Globals a piece of code names, and what it takes from modules; code within code too."""
    for name in code.co_names:
        value = names.get(name)
        yield value
        if isinstance(value, types.ModuleType) and value.__name__.startswith(("gpuaas_cli", "gpuaas_contract")):
            yield from (getattr(value, attribute, None) for attribute in code.co_names)
        if isinstance(value, type) and value.__module__.startswith(_OURS):
            yield from vars(value).values()
    for constant in code.co_consts:
        if "list_all" in code.co_names and constant in {kind.plural for kind in kinds.KINDS}:
            yield kinds.get(str(constant)).fetch
        if isinstance(constant, types.CodeType):
            yield from _named_in(constant, names)
