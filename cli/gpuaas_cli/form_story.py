"""Pure: a form or an endpoint of the API as lines for people. For `gpuaas explain` and `gpuaas schema`."""

import json
import textwrap
from collections.abc import Sequence
from typing import Any

import msgspec
from gpuaas_contract.endpoint import Endpoint
from gpuaas_contract.wire import NoBody, NoQuery

from gpuaas_cli import forms, reach
from gpuaas_cli.output import aligned
from gpuaas_cli.story import facts, section

WIDTH = 100

Lines = list[str]


def of_form(form: forms.Form) -> Lines:
    parents = forms.parents_of(form)
    return [
        *facts({"Form": form.name, "Meaning": " ".join(form.meaning.split()), "Part of": ", ".join(parents)}),
        *section("Fields", _fields(form.fields)),
        *section("Commands", commands(form)),
        *section("More", [f"gpuaas explain {form.name}.{one.name}" for one in form.fields if one.form]),
    ]


def of_field(form: forms.Form, field: forms.Field) -> Lines:
    inner = forms.every()[field.form] if field.form else None
    return [
        *facts(
            {
                "Field": f"{form.name}.{field.name}",
                "Type": field.type,
                "Given": _given(field),
                "Values": ", ".join(field.values),
                "Limits": field.limits,
                "Meaning": field.meaning,
            }
        ),
        *(section(f"Fields of {inner.name}", _fields(inner.fields)) if inner else []),
    ]


def commands(form: forms.Form) -> Lines:
    """Each once, with what the first endpoint it reaches does."""
    found: dict[str, str] = {}
    for endpoint in forms.endpoints_of(form):
        for line in reach.lines(endpoint.name):
            found.setdefault(line, endpoint.summary)
    return aligned([[line, summary] for line, summary in found.items()]) if found else []


def of_endpoint(endpoint: Endpoint[Any, Any]) -> Lines:
    lines = reach.lines(endpoint.name)
    return [
        *facts(
            {
                "Endpoint": endpoint.name,
                "Does": endpoint.summary,
                "Request": f"{endpoint.method} {endpoint.path}",
                "Permission": endpoint.permission or "none of its own",
                "Answers": f"{endpoint.status} {_named(endpoint.response)}",
                "Repeated": _repeated(endpoint),
                "Command": ", ".join(lines) or f"none: {unreached(endpoint)}",
            }
        ),
        *section("Parameters", _fields(_form_fields(endpoint.query)) if endpoint.query is not NoQuery else []),
        *section(f"Body: {_named(endpoint.request)}", _body(endpoint)),
        *section("Example", [json.dumps(endpoint.example)] if endpoint.example else []),
        *section("Errors", _errors(endpoint)),
        *section("More", [f"gpuaas schema {endpoint.name} -o json", *_further(endpoint.response)]),
    ]


def unreached(endpoint: Endpoint[Any, Any]) -> str:
    return "a node calls it" if endpoint.audience == "node" else reach.UNREACHED.get(endpoint.name, "")


def _body(endpoint: Endpoint[Any, Any]) -> Lines:
    if endpoint.request is NoBody:
        return []
    return ["raw bytes"] if endpoint.takes_bytes else _fields(_form_fields(endpoint.request))


def _form_fields(struct: type) -> list[forms.Field]:
    return forms.every()[forms.name_of(struct)].fields


def _named(struct: Any) -> str:
    """`page of node` for what lists answer with."""
    inside = getattr(struct, "__args__", ())
    if inside:
        return f"page of {_named(inside[0])}"
    return "bytes" if struct is bytes else forms.name_of(struct)


def _further(response: Any) -> Lines:
    name = _named(response).removeprefix("page of ")
    return [f"gpuaas explain {name}"] if name in forms.every() else []


def _repeated(endpoint: Endpoint[Any, Any]) -> str:
    if not endpoint.mutates:
        return ""
    return "with the same X-Idempotency-Key, once" if endpoint.repeat == "key" else "as often as you like, the same"


def _errors(endpoint: Endpoint[Any, Any]) -> Lines:
    found = sorted(endpoint.possible_errors(), key=lambda one: (one.status, one.code))
    return aligned([[str(one.status), one.code] for one in found])


def _fields(fields: Sequence[forms.Field]) -> Lines:
    heads = aligned([[one.name, one.type, _given(one)] for one in fields]) if fields else []
    lines: Lines = []
    for head, field in zip(heads, fields, strict=True):
        values = f"One of {', '.join(field.values)}." if field.values else ""
        text = " ".join(filter(None, (field.meaning, values, field.limits and _sentence(field.limits))))
        lines += [head, *textwrap.wrap(text, WIDTH, initial_indent="    ", subsequent_indent="    ")]
    return lines


def _given(field: forms.Field) -> str:
    if field.required:
        return "required"
    return f"default {json.dumps(field.default)}" if field.default not in (None, "", [], {}) else "optional"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def as_data(form: forms.Form) -> dict[str, Any]:
    """For programs: what `of_form` says, in fields."""
    reached = [(line, one) for one in forms.endpoints_of(form) for line in reach.lines(one.name)]
    return {
        "form": form.name,
        "meaning": form.meaning,
        "fields": msgspec.to_builtins(form.fields),
        "commands": [{"command": line, "endpoint": one.name, "does": one.summary} for line, one in reached],
    }
