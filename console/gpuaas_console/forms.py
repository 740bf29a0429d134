"""Pure: a JSON Schema as the fields of a form, and a sent form as inputs. For deploy, reconfigure and actions."""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from gpuaas_console.web import Form

Widget = Literal["text", "long", "secret", "number", "select", "lines", "json", "pick_one", "pick_many"]
PREFIX = "in."
"""Names of the inputs in a form begin with this, so that they differ from the form's own fields."""
LONG = 1000
"""A text that can be longer than this gets a field of several lines."""
DEPTH_MAX = 60
"""Levels of a value. The platform accepts 64 of a whole request."""


class Choice(NamedTuple):
    value: str
    label: str
    why_not: str = ""


Choices = Mapping[str, Sequence[Choice]]
"""Kind of picker -> what it offers."""


@dataclass(frozen=True)
class Field:
    name: str
    label: str
    help: str
    widget: Widget
    required: bool
    value: str | list[str]
    choices: Sequence[Choice] = ()
    placeholder: str = ""
    error: str = ""
    limits: Mapping[str, Any] | None = None


def fields(
    schema: Mapping[str, Any],
    values: Mapping[str, Any],
    choices: Choices,
    errors: Mapping[str, str],
    only: Collection[str] | None = None,
) -> list[Field]:
    """Return the fields of a schema, required ones first. `values` are inputs; `errors` are texts by field."""
    declared = _properties(schema)
    required = set(schema.get("required", []))
    names = [name for name in declared if only is None or name in only]
    names.sort(key=lambda name: name not in required)
    return [_field(name, declared[name], name in required, values, choices, errors.get(name, "")) for name in names]


def _properties(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the schema of each field. `true`, which allows every value, is a schema, too."""
    return {name: field if isinstance(field, Mapping) else {} for name, field in schema.get("properties", {}).items()}


def _items(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    items = schema.get("items", {})
    return items if isinstance(items, Mapping) else {}


def _field(
    name: str, schema: Mapping[str, Any], required: bool, values: Mapping[str, Any], choices: Choices, error: str
) -> Field:
    widget: Widget = "select" if name in choices else _widget(schema)
    present = values.get(name, schema.get("default"))
    examples = schema.get("examples", [])
    limits = {"min": schema.get("minimum"), "max": schema.get("maximum"), "maxlength": schema.get("maxLength")}
    return Field(
        name=name,
        label=str(schema.get("title") or name.replace("_", " ").capitalize()),
        help=str(schema.get("description", "")),
        widget=widget,
        required=required,
        value=_shown(widget, present),
        choices=choices.get(name) or _choices(schema, choices, required=required),
        placeholder=str(_shown("text", examples[0])) if examples else "",
        error=error,
        limits={key: value for key, value in limits.items() if value is not None},
    )


def _widget(schema: Mapping[str, Any]) -> Widget:
    kind, items = schema.get("type"), _items(schema)
    if "x-gpuaas-picker" in schema or (kind == "array" and "x-gpuaas-picker" in items):
        return "pick_many" if kind == "array" else "pick_one"
    if schema.get("x-secret"):
        return "secret"
    if "enum" in schema or kind == "boolean":
        return "select"
    if kind in ("integer", "number"):
        return "number"
    if kind == "array" and items.get("type") in ("string", "integer", "number"):
        return "lines"
    if kind in ("array", "object"):
        return "json"
    return "long" if schema.get("maxLength", 0) > LONG else "text"


def default_of(schema: Mapping[str, Any], name: str) -> Any:
    return _properties(schema).get(name, {}).get("default")


def pickers(schema: Mapping[str, Any]) -> set[str]:
    """Return the kinds of pickers that the fields of a schema name."""
    fields = _properties(schema).values()
    named = [field.get("x-gpuaas-picker") or _items(field).get("x-gpuaas-picker") for field in fields]
    return {str(kind) for kind in named if kind}


def _choices(schema: Mapping[str, Any], choices: Choices, *, required: bool) -> Sequence[Choice]:
    picker = schema.get("x-gpuaas-picker") or _items(schema).get("x-gpuaas-picker")
    if picker:
        return choices.get(picker, ())
    is_boolean = schema.get("type") == "boolean"
    offered = (
        {"true": "yes", "false": "no"} if is_boolean else {str(item): str(item) for item in schema.get("enum", [])}
    )
    # Without a default, a field that may be left out has an empty choice.
    empty = [] if required or "default" in schema or not offered else [Choice("", "(not set)")]
    return [*empty, *(Choice(item, label) for item, label in offered.items())]


def _shown(widget: Widget, value: Any) -> str | list[str]:
    if widget == "pick_many":
        return [str(item) for item in value] if isinstance(value, list) else []
    if value is None:
        return ""
    if widget == "lines" and isinstance(value, list):
        return "\n".join(str(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def read(
    schema: Mapping[str, Any], form: Form, only: Collection[str] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the inputs of a sent form, and an error for each field that cannot be read. The platform checks more."""
    inputs: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for name, field in _properties(schema).items():
        if only is not None and name not in only:
            continue
        try:
            value = _read(field, form, PREFIX + name)
        except ValueError as error:
            errors[name] = str(error)
            continue
        if value is not None:
            inputs[name] = value
    return inputs, errors


def emptied(schema: Mapping[str, Any], form: Form) -> set[str]:
    """Return the fields that people emptied. A secret is not shown, so its empty field means no change."""
    shown = [name for name, field in _properties(schema).items() if _widget(field) != "secret"]
    return {name for name in shown if PREFIX + name in form and not form.text(PREFIX + name)}


def _read(schema: Mapping[str, Any], form: Form, name: str) -> Any:
    widget, text = _widget(schema), form.text(name)
    if widget == "pick_many":
        return form.every(name) or None
    if not text:
        return None
    if widget == "number":
        return _number(text, whole=schema.get("type") == "integer")
    if widget == "lines":
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        kind = _items(schema)["type"]
        return lines if kind == "string" else [_number(line, whole=kind == "integer") for line in lines]
    if widget == "json":
        return _json(text)
    if schema.get("type") == "boolean":
        return text == "true"
    return next((item for item in schema.get("enum", []) if str(item) == text), text)


def _json(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_no_constant)
        msgspec.json.encode(value)
        if _depth(value) > DEPTH_MAX:
            raise RecursionError
    except RecursionError as error:
        raise ValueError("This JSON is nested too deep") from error
    except ValueError as error:  # also of text that is no Unicode
        raise ValueError(f"This is no JSON: {error}") from error
    return value


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, parts), default=0)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _number(text: str, *, whole: bool) -> int | float:
    wrong = f"{text!r} is no {'whole ' if whole else ''}number"
    try:
        number = int(text) if whole else float(text)
    except ValueError as error:
        raise ValueError(wrong) from error
    if not math.isfinite(number):
        raise ValueError(wrong)
    return number
