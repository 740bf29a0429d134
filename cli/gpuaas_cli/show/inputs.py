"""Format the inputs of an action for people, from the JSON Schema in the app's manifest."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuaas_contract.catalog import ActionSpec

from gpuaas_cli import output
from gpuaas_cli.output import Lines, flat

_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matches {}",
}
"""Keyword of JSON Schema -> how people read it."""


class Input(NamedTuple):
    """One input of an action."""

    name: str
    required: bool
    default: str
    type: str
    values: str
    meaning: str


def of(schema: Mapping[str, Any]) -> list[Input]:
    """Return the inputs in the order of the schema."""
    required = schema.get("required", [])
    return [_input(name, field, name in required) for name, field in schema.get("properties", {}).items()]


def brief(schema: Mapping[str, Any]) -> str:
    """Return the inputs in one cell, required ones with a star: `names*,state=all`."""
    return ",".join(
        f"{item.name}{'*' if item.required else ''}{f'={item.default}' if item.default else ''}" for item in of(schema)
    )


def page(action: ActionSpec, instance: str) -> Lines:
    """Return all that people need to run an action: what it does, its inputs, and the command."""
    listed = of(action.input_schema)
    shape = output.table("INPUT=name REQUIRED DEFAULT TYPE VALUES MEANING")
    example = [word for item in listed if item.required for word in ("--input", f"{item.name}=VALUE")]
    facts = [
        ["Permission", action.permission],
        ["Deadline", f"{action.deadline_s} s"],
        ["Runs", "alone on the instance" if action.exclusive else "beside other operations"],
    ]
    return [
        f"{action.name}: {flat(action.title)}",
        *([flat(action.summary)] if action.summary else []),
        *output.aligned(facts),
        "",
        *(output.listing(listed, shape) or ["It has no inputs."]),
        "",
        f"Run it: {output.quoted_command('action', 'run', instance, action.name, *example)}",
    ]


def _input(name: str, field: Any, required: bool) -> Input:
    field = field if isinstance(field, Mapping) else {}
    default = _text(field["default"]) if "default" in field else ""
    meaning = str(field.get("description") or field.get("title") or "")
    return Input(name, required, default, _type(field), _values(field), meaning)


def _type(field: Mapping[str, Any]) -> str:
    kind, items = field.get("type", "any"), field.get("items")
    name = "|".join(map(str, kind)) if isinstance(kind, list) else str(kind)
    return f"{name}[{_type(items)}]" if name == "array" and isinstance(items, Mapping) and items else name


def _values(field: Mapping[str, Any]) -> str:
    """Return which values are permitted; of a list, those of its items."""
    if "enum" in field:
        return "|".join(_text(value) for value in field["enum"])
    own = [text.format(field[keyword]) for keyword, text in _LIMITS.items() if keyword in field]
    items = field.get("items")
    return ", ".join([*own, *([_values(items)] if isinstance(items, Mapping) and _values(items) else [])])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
