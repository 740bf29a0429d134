"""Pure: format a form or an endpoint of the API as lines of text. For `gpuaas explain` and `gpuaas schema`."""

import json
import textwrap
from collections.abc import Mapping
from typing import Any

import msgspec
from gpuaas_contract.endpoint import Endpoint

from gpuaas_cli.explain import forms
from gpuaas_cli.output import Lines, aligned
from gpuaas_cli.runner import reach
from gpuaas_cli.show.story import section

WIDTH = 100
_TEXT_WIDTH_MIN = 24


def of_form(form: forms.Form, width: int = WIDTH) -> Lines:
    return [
        *_facts(width, Form=form.name, Meaning=form.meaning, Part_of=", ".join(forms.parents_of(form))),
        *section("Fields", _fields(form, width)),
        *section("Commands", _columns(commands(form), width - 2)),
        *section("More", [f"gpuaas explain {form.name}.{item.name}" for item in form.fields if item.form]),
    ]


def of_field(form: forms.Form, field: forms.Field, width: int = WIDTH) -> Lines:
    inner = forms.every()[field.form] if field.form else None
    return [
        *_facts(
            width,
            Field=f"{form.name}.{field.name}",
            Meaning=field.meaning,
            Type=field.type,
            Given=_given(field) if form.is_sent else "",
            Values=", ".join(field.values),
            Limits=field.limits,
        ),
        *(section(f"Fields of {inner.name}", _fields(inner, width)) if inner else []),
    ]


def commands(form: forms.Form) -> dict[str, str]:
    """Return each command with the summary of the first endpoint that it calls; a repeated summary is left empty."""
    result: dict[str, str] = {}
    for endpoint in forms.endpoints_of(form):
        for line in reach.lines(endpoint):
            result.setdefault(line, "" if endpoint.summary in result.values() else endpoint.summary)
    return result


def of_endpoint(endpoint: Endpoint[Any, Any], width: int = WIDTH) -> Lines:
    answer = forms.name_of(endpoint.response).removeprefix("page of ")
    further = [f"gpuaas explain {answer}"] if answer in forms.every() else []
    repeated = "with the same X-Idempotency-Key, once" if endpoint.repeat == "key" else "as often as you like, the same"
    errors = sorted(endpoint.possible_errors(), key=lambda item: (item.status, item.code))
    return [
        *_facts(
            width,
            Endpoint=endpoint.name,
            Does=endpoint.summary,
            Request=f"{endpoint.method} {endpoint.path}",
            Permission=endpoint.permission or "none of its own",
            Answers=f"{endpoint.status} {forms.name_of(endpoint.response)}",
            Repeated=repeated if endpoint.mutates else "",
            Command=", ".join(reach.lines(endpoint)) or f"none: {reach.why_unreached(endpoint)}",
        ),
        *section("Parameters", _fields_of(endpoint.query, width)),
        *section(f"Body: {forms.name_of(endpoint.request)}", _fields_of(endpoint.request, width)),
        *section("Example", [json.dumps(endpoint.example)] if endpoint.example else []),
        *section("Errors", _columns({f"{item.status}  {item.code}": item.title for item in errors}, width - 2)),
        *section("More", [f"gpuaas schema {endpoint.name} -o json", *further]),
    ]


def _fields_of(struct: Any, width: int) -> Lines:
    form = forms.every().get(forms.name_of(struct))
    return _fields(form, width) if form else ["raw bytes"] if struct is bytes else []


def _fields(form: forms.Form, width: int) -> Lines:
    rows = [[item.name, item.type, _given(item) if form.is_sent else ""] for item in form.fields]
    lines: Lines = []
    for head, field in zip(aligned(rows), form.fields, strict=True):
        values = f"One of {', '.join(field.values)}." if field.values else ""
        limits = f"{field.limits[0].upper()}{field.limits[1:].removesuffix('.')}." if field.limits else ""
        text = " ".join(filter(None, (field.meaning, values, limits)))
        lines += [head, *_wrapped(text, width - 2, "    ", "    ")]
    return lines


def _facts(width: int, **pairs: str) -> Lines:
    return _columns({name.replace("_", " "): value for name, value in pairs.items() if value}, width)


def _columns(pairs: Mapping[str, str], width: int) -> Lines:
    """Return lines with names and values in two columns; a long value continues on the next line."""
    left = max(map(len, pairs), default=0) + 2
    room = max(width, left + _TEXT_WIDTH_MIN)
    return [
        line for name, value in pairs.items() for line in _wrapped(value, room, name.ljust(left), " " * left) or [name]
    ]


def _wrapped(text: str, width: int, first: str, further: str) -> Lines:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )


def _given(field: forms.Field) -> str:
    if field.required:
        return "required"
    if field.form:
        # The fields of the inner form have their own defaults.
        return "optional"
    return f"default {json.dumps(field.default)}" if field.default not in (None, "", [], {}) else "optional"


def as_data(form: forms.Form) -> dict[str, Any]:
    """Return the content of `of_form` as data for structured output."""
    reached = [(line, item) for item in forms.endpoints_of(form) for line in reach.lines(item)]
    return {
        "form": form.name,
        "meaning": form.meaning,
        "fields": msgspec.to_builtins(form.fields),
        "commands": [{"command": line, "endpoint": item.name, "does": item.summary} for line, item in reached],
    }
