"""Make the reference page of the kit from its docstrings.

`python -m gpuaas_sdk.reference --write docs/reference/kit.md`"""

import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import msgspec
from gpuaas_contract import golden

from gpuaas_sdk import docstrings
from gpuaas_sdk.docstrings import Entry

MODULES = (
    "controller",
    "controller.members",
    "controller.package_sources",
    "controller.quorum",
    "controller.cluster",
    "certificates",
    "machine",
    "machine.commands",
    "checks",
    "results",
    "testing",
    "conformance",
    "conformance.real",
    "scaffold",
    "client",
    "auth",
    "installs",
    "installs.receipts",
    "installs.packages",
    "installs.package_changes",
    "installs.uninstall",
    "installs.removals",
    "installs.acts",
    "installs.apt",
    "installs.bundle",
    "installs.wheels",
    "installs.units",
    "installs.undo",
)
"""Modules of `gpuaas_sdk` that apps and their tests import, in the order of the page: those that each app needs come
first."""
_HEAD = """# The kit, name by name

Made from the docstrings of `gpuaas_sdk`; after a change there: `make contract`. `make check` checks the types of every
example. A first app: [build an app](../build-an-app.md). What belongs to the kit and what to an app:
[the cut](../explanation/app-and-kit.md)."""
_DATA = """## Data of the contract

`gpuaas_sdk.controller` also exports the structs that handlers read and report. `gpuaas explain NAME` shows their
fields, such as the `address` of a `Member`.

| name | what it is |
|---|---|"""
_NO_STRUCTS = """It also exports two names of the contract that are no structs:

| name | what it is |
|---|---|"""


@functools.cache
def sections() -> dict[str, tuple[str, list[Entry]]]:
    """Return the docstring and the entries of each module. A name is listed where it is exported first."""
    seen: set[int] = set()
    result = {}
    for name in MODULES:
        module = importlib.import_module(f"gpuaas_sdk.{name}")
        entries = [docstrings.entry(module, public) for public in _names(module, seen)]
        result[f"gpuaas_sdk.{name}"] = inspect.getdoc(module) or "", entries
    return result


def data() -> list[Entry]:
    """Return the structs of the contract that the kit exports."""
    module = importlib.import_module("gpuaas_sdk.controller")
    names = [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    return [docstrings.entry(module, name) for name in names if _is_data(name, getattr(module, name))]


def structs() -> list[Entry]:
    """Return those of `data` that have fields."""
    module = importlib.import_module("gpuaas_sdk.controller")
    return [entry for entry in data() if _is_struct(getattr(module, entry.name))]


def every() -> Iterator[tuple[str, Entry]]:
    """Yield the path of every entry, such as `gpuaas_sdk.controller.App.main`, and the entry."""
    for module, (_, entries) in sections().items():
        for entry in entries:
            yield f"{module}.{entry.name}", entry
            yield from ((f"{module}.{entry.name}.{part.name}", part) for part in entry.inner)
    yield from ((f"gpuaas_sdk.controller.{entry.name}", entry) for entry in data())


def page() -> str:
    parts = [_HEAD]
    for module, (text, entries) in sections().items():
        if entries:
            parts += [f"## `{module}`", _shown(text), *(_section(entry) for entry in entries)]
    explained = structs()
    others = [entry for entry in data() if entry not in explained]
    parts += ["\n".join([_DATA, *_rows(explained)]), "\n".join([_NO_STRUCTS, *_rows(others)])]
    return "\n\n".join(parts) + "\n"


def _rows(entries: list[Entry]) -> list[str]:
    return [f"| `{entry.name}` | {_cell(entry.text)} |" for entry in entries]


def _names(module: ModuleType, seen: set[int]) -> list[str]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
    names = []
    for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
        value = getattr(module, name)
        if id(value) not in seen and not isinstance(value, ModuleType) and not _is_data(name, value):
            names.append(name)
            seen.add(id(value))
    return names


def _is_data(name: str, value: Any) -> bool:
    return name == "OperationKind" or str(getattr(value, "__module__", "")).startswith("gpuaas_contract")


def _is_struct(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, msgspec.Struct)


def _section(entry: Entry) -> str:
    calls = [part for part in entry.inner if "(" in part.signature]
    rows = [f"| `{part.name}` | {_cell(part.text, part.type)} |" for part in entry.inner if part not in calls]
    parts = [f"### `{entry.name}`", _code(entry.signature) if "(" in entry.signature else "", _shown(entry.text)]
    parts += ["\n".join(["| | |", "|---|---|", *rows])] if rows else []
    parts += [f"{_code(part.signature)}\n\n{_shown(part.text)}" for part in calls]
    return "\n\n".join(filter(None, parts))


def _shown(text: str) -> str:
    return "\n\n".join(_code(part) if is_code else part for is_code, part in docstrings.pieces(text))


def _code(text: str) -> str:
    return f"```python\n{text}\n```"


def _cell(text: str, kind: str = "") -> str:
    """Return a text as one cell of a table; a field without a text has its type."""
    words = [f"`{part}`" if is_code else part for is_code, part in docstrings.pieces(text)]
    return " ".join(" ".join(words).split()).replace("|", "\\|") or f"`{kind}`".replace("|", "\\|")


if __name__ == "__main__":
    sys.exit(golden.main("the docstrings of the kit", lambda _: page()))
