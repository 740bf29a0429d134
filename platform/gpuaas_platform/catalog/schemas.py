"""Pure: check that JSON Schemas in manifests are valid and safe, and that a document fits a schema.

App teams write the schemas, and the platform's process runs them. So references (`$ref`), which could loop, multiply or
fetch something, are refused. Patterns run in linear time, in an engine without look-around and back references. The
work for one document is bounded: it is about the weight of the schema times the size of the document.
"""

import itertools
from collections.abc import Iterator, Mapping
from typing import get_args

import jsonschema_rs
from gpuaas_contract.catalog import Picker

from gpuaas_platform.catalog import words

DEPTH_MAX = 16
WEIGHT_MAX = 5_000
"""How many steps a schema may take for one value. The largest form of our own apps takes a few hundred."""
STEPS_MAX = 1_000_000
"""How many steps a document may take, each about a microsecond: no other request is served at that time."""
DETAILED_STEPS_MAX = 20_000
"""How many steps may take the list of all misfits, which needs thirty times as long and 2 KiB for each step."""
_CHARS_PER_STEP = 32
_MISFITS_MAX = 20
PICKER = "x-gpuaas-picker"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NO_REFERENCES = "a schema is written out whole; references could loop, multiply or lead elsewhere"
_PATTERNS = jsonschema_rs.RegexOptions(size_limit=100_000, dfa_size_limit=1_000_000)
_LISTED = ("enum", "required", "dependentRequired")
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
    if not refused and (weight := _weight(schema)) > WEIGHT_MAX:
        refused = [(path, f"its check takes {weight} steps for one value, at most {WEIGHT_MAX}; make it smaller")]
    yield from refused
    if refused:
        return
    try:
        _validator(schema)
    except jsonschema_rs.ValidationError as error:
        yield words.path(path, *error.instance_path), f"not a JSON Schema: {error.message[:200]}"
        return
    except ValueError as error:  # a default or an example that is nested deeper than the library reads
        yield path, f"it cannot be read: {error}"
        return
    if schema.get("type") != "object":
        yield f"{path}.type", "it describes an object"


def misfits(schema: dict[str, object], document: object) -> dict[str, str]:
    """Return path -> description of the first places where the document does not fit; `$` is the whole document."""
    steps = _weight(schema) * _size(document)
    if steps > STEPS_MAX:
        return {"$": f"its check takes about {steps} steps, at most {STEPS_MAX}; give fewer or shorter values"}
    try:
        return _misfits(schema, document, steps)
    except ValueError as error:  # the document is nested deeper than the library reads
        return {"$": f"it cannot be checked: {error}"}


def _misfits(schema: dict[str, object], document: object, steps: int) -> dict[str, str]:
    validator = _validator(schema)
    if steps <= DETAILED_STEPS_MAX:
        return dict(_misfit(error) for error in itertools.islice(validator.iter_errors(document), _MISFITS_MAX))
    if validator.is_valid(document):
        return {}
    if not _has_choice(schema):
        return dict(_misfit(error) for error in _first(validator, document))
    return _unfit_fields(schema, document) or {"$": "it does not fit the app's schema"}


def _first(validator: jsonschema_rs.Draft202012Validator, document: object) -> list[jsonschema_rs.ValidationError]:
    try:
        validator.validate(document)
    except jsonschema_rs.ValidationError as error:
        return [error]
    return []


def _unfit_fields(schema: dict[str, object], document: object) -> dict[str, str]:
    """Return the first fields of the document that do not fit, without the reason."""
    properties, given = schema.get("properties"), document if isinstance(document, Mapping) else {}
    if not isinstance(properties, dict):
        return {}
    unfit = (name for name in properties if name in given and not _validator(properties[name]).is_valid(given[name]))
    return {words.path("", name): "it does not fit the app's schema" for name in itertools.islice(unfit, _MISFITS_MAX)}


def _has_choice(schema: object) -> bool:
    """Return whether the error of the schema lists the errors of all alternatives: `anyOf` or `oneOf` anywhere."""
    if not isinstance(schema, dict):
        return False
    return any(word in schema for word in ("anyOf", "oneOf")) or any(
        _has_choice(inner) for _, inner in _inside("", schema)
    )


def _weight(schema: object) -> int:
    """Return about how many steps the schema takes for one value. What `unevaluatedItems` and `unevaluatedProperties`
    need is evaluated again, at each level."""
    if not isinstance(schema, dict):
        return 1
    listed = sum(len(value) for word in _LISTED if isinstance(value := schema.get(word), (list, dict)))
    weight = 1 + listed + sum(_weight(inner) for _, inner in _inside("", schema))
    return weight * (3 if "unevaluatedItems" in schema or "unevaluatedProperties" in schema else 1)


def _size(document: object) -> int:
    """Return how many values a document has. Long texts count more than once. A document can be nested deeper than
    calls can be."""
    size, left = 0, [document]
    while left:
        value = left.pop()
        size += 1 + (len(value) // _CHARS_PER_STEP if isinstance(value, str) else 0)
        if isinstance(value, Mapping):
            left += [*value, *value.values()]
        elif isinstance(value, (list, tuple)):
            left += value
    return size


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
