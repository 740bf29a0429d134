"""Pure: check that JSON Schemas in manifests are valid and safe, and that a document fits a schema.

App teams write the schemas, and the platform's process runs them. So references (`$ref`), which could loop, multiply or
fetch something, are refused. Patterns run in linear time, in an engine without look-around and back references.
"""

import itertools
from collections.abc import Iterator
from typing import get_args

import jsonschema_rs
from gpuaas_contract.catalog import Picker

from gpuaas_platform.catalog import words

DEPTH_MAX = 16
_MISFITS_MAX = 20
PICKER = "x-gpuaas-picker"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_REFERENCES = "a schema is written out whole; references could loop, multiply or lead elsewhere"
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=100_000, dfa_size_limit=1_000_000)
_MANY_BY_NAME = ("properties", "patternProperties", "$defs", "dependentSchemas")
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "contains", "additionalProperties", "propertyNames", "unevaluatedItems", "unevaluatedProperties"),
    *("not", "if", "then", "else"),
)


def flaws(path: str, schema: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Yield the path and the description of each flaw of a schema."""
    if schema.get("$schema", _DIALECT) != _DIALECT:
        yield f"{path}.$schema", f"the platform reads {_DIALECT}"
        return
    refused = list(_flaws_below(path, schema, 1))
    yield from refused
    if refused:
        return
    try:
        _validator(schema)
    except jsonschema_rs.ValidationError as error:
        yield words.path(path, *error.instance_path), f"not a JSON Schema: {error.message[:200]}"
        return
    if schema.get("type") != "object":
        yield f"{path}.type", "it describes an object"


def misfits(schema: dict[str, object], document: object) -> dict[str, str]:
    """Return path -> description of the first places where the document does not fit; `$` is the whole document."""
    problems = itertools.islice(_validator(schema).iter_errors(document), _MISFITS_MAX)
    return dict(_misfit(error) for error in problems)


def _misfit(error: jsonschema_rs.ValidationError) -> tuple[str, str]:
    """Return the path of a field and why it does not fit. A missing field is named, not the object without it."""
    at, kind = error.instance_path, error.kind.as_dict()
    match error.kind.name:
        case "required":
            return words.path("", *at, kind["property"]), "it is missing"
        case "additionalProperties":
            return words.path("", *at, kind["unexpected"][0]), "the app's schema has no field with this name"
        case "not" if isinstance(kind["schema"], dict) and "title" in kind["schema"]:
            return words.path("", *at) or "$", f"{error.instance!r} is not allowed: {kind['schema']['title']}"[:500]
    return words.path("", *at) or "$", error.message[:500]


def _validator(schema: dict[str, object]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(schema, pattern_options=_PATTERNS)


def _flaws_below(path: str, schema: object, depth: int) -> Iterator[tuple[str, str]]:
    if not isinstance(schema, dict):
        return
    if depth > DEPTH_MAX:
        yield path, f"schemas are nested at most {DEPTH_MAX} deep"
        return
    yield from ((f"{path}.{word}", _NO_REFERENCES) for word in ("$ref", "$dynamicRef") if word in schema)
    if PICKER in schema and schema[PICKER] not in get_args(Picker):
        yield f"{path}.{PICKER}", words.unknown("picker", schema[PICKER], get_args(Picker))
    for inner_path, inner in _inside(path, schema):
        yield from _flaws_below(inner_path, inner, depth + 1)


def _inside(path: str, schema: dict[str, object]) -> Iterator[tuple[str, object]]:
    """Yield the schemas inside a schema. It has not been validated yet, so each value may have any type."""
    for word in _MANY_BY_NAME:
        if isinstance(by_name := schema.get(word), dict):
            yield from ((words.path(path, word, name), inner) for name, inner in by_name.items())
    for word in _MANY:
        if isinstance(several := schema.get(word), list):
            yield from ((words.path(path, word, place), inner) for place, inner in enumerate(several))
    yield from ((words.path(path, word), schema[word]) for word in _SINGLE if word in schema)
