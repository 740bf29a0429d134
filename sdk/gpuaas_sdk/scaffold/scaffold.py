"""Write the files of a new app. It works as it is and passes the conformance kit; its team replaces the workload."""

import os
import re
import string
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
NAME_CHARS_MAX = 40
_MEMBER_OPERATIONS = "operations: [add, drain, resume, remove, replace], replace_order: new_first"


class CannotCreate(Exception):
    """The app cannot be created. The message gives the reason, `name` is one that can be used.

    try:
        scaffold.create("hello")
    except scaffold.CannotCreate as error:
        scaffold.create(error.name)"""

    def __init__(self, text: str, name: str = "hello") -> None:
        super().__init__(text)
        self.name = name


@dataclass(frozen=True)
class Kind:
    """A kind of app that the templates know."""

    summary: str
    roles: Mapping[str, str]
    """Role -> the rest of its entry in the manifest."""
    at_once: int = 0
    first_roles: tuple[str, ...] = ()


KINDS = {
    "service": Kind(
        "Servers that answer requests; each works alone.",
        {"server": f"min: 1, max: 9, {_MEMBER_OPERATIONS}"},
    ),
    "batch": Kind(
        "A head that accepts jobs, and workers that run them.",
        {"head": "min: 1, max: 1", "worker": f"min: 1, max: 9, {_MEMBER_OPERATIONS}"},
        first_roles=("head",),
    ),
    "quorum": Kind(
        "Peers that keep data together; one at a time may be away.",
        {"peer": f"min: 3, max: 9, unavailable_max: 1, {_MEMBER_OPERATIONS}"},
        at_once=1,
    ),
}
"""The kinds of apps by name.

summaries = {name: kind.summary for name, kind in scaffold.KINDS.items()}"""


def create(name: str, kind: str = "service", folder: Path | None = None) -> list[Path]:
    """Write a new app into a new folder, by default named as the app, and return its files.

    scaffold.create("hello", "service")"""
    _check(name, kind)
    home = folder or Path(name)
    if os.path.lexists(home):
        raise CannotCreate(f"{home} exists already, and nothing is overwritten", f"{name}-2")
    files = _files(name)
    values = _values(name, kind)
    try:
        for path, template in files.items():
            (home / path).parent.mkdir(parents=True, exist_ok=True)
            (home / path).write_text(_text(template).substitute(values) if template else "")
    except OSError as error:
        raise CannotCreate(f"{error.filename} cannot be written: {error.strerror}", name) from error
    return [home / path for path in files]


def _check(name: str, kind: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise CannotCreate(
            f"{name!r} is no name of an app: it has up to {NAME_CHARS_MAX} lower-case letters and digits, a letter "
            "first, with single hyphens between"
        )
    if kind not in KINDS:
        raise CannotCreate(f"there is no kind {kind!r}; the kinds are {', '.join(KINDS)}")


def _files(name: str) -> dict[str, str]:
    """Return the path of each file of the app, and its template; an empty template means an empty file."""
    package = _package(name)
    modules = ("controller.py", "members.py", "plan.py", "workload.py", "program.py", "conformance.py")
    inside = {f"{package}/{module}": module for module in (*modules, "manifest.yaml", "runbook.md")}
    return {
        "README.md": "README.md",
        "pyproject.toml": "pyproject.toml",
        f"{package}/__init__.py": "",
        f"{package}/py.typed": "",
        **inside,
        f"{package}/{name}.service": "unit.service",
        "tests/test_plan.py": "test_plan.py",
        "tests/test_conformance.py": "test_conformance.py",
    }


def _values(name: str, kind: str) -> dict[str, str]:
    chosen = KINDS[kind]
    fields = {role: f"{role}_allocations" for role in chosen.roles}
    return {
        "name": name,
        "kind": kind,
        "package": _package(name),
        "title": name.replace("-", " ").capitalize(),
        "summary": chosen.summary,
        "at_once": str(chosen.at_once),
        "first_roles": _as_tuple(chosen.first_roles),
        "last_role": list(chosen.roles)[-1],
        "roles": "\n".join(f"  - {{component_key: {role}, {rest}}}" for role, rest in chosen.roles.items()),
        "placement": "\n".join(f"    {role}: {field}" for role, field in fields.items()),
        "fields": ", ".join(fields.values()),
        "form": "\n".join(_field(role, field) for role, field in fields.items()),
    }


def _field(role: str, field: str) -> str:
    schema = f"type: array, title: Machines for {role}, items: {{type: string, x-gpuaas-picker: allocation}}"
    return f"    {field}: {{{schema}}}"


def _as_tuple(names: tuple[str, ...]) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"({listed},)" if names else "()"


def _package(name: str) -> str:
    return f"gpuaas_app_{name.replace('-', '_')}"


def _text(template: str) -> string.Template:
    return string.Template((resources.files(__package__) / "templates" / f"{template}.in").read_text())
