"""Pure: parse typed values. `key=value` is an input with the type of the app's form; a span is 30m, 2h or 7d, a moment
2030-01-31 or 2030-01-31T08:00:00Z."""

import datetime
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuaas_contract.catalog import Manifest

from gpuaas_cli import failures

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")


def build(manifest: Manifest, sets: Sequence[str]) -> dict[str, Any]:
    return typed(manifest.display_name, manifest.deploy_form, sets)


def typed(owner: str, form: Mapping[str, Any], pairs: Sequence[str], option: str = "--set") -> dict[str, Any]:
    """Return the inputs of the `KEY=VALUE` pairs. Errors name the `owner` of the form and the `option` of the pairs.
    Allocations are not changed: the server finds them by id or node."""
    fields: Mapping[str, Any] = form.get("properties", {})
    given: dict[str, Any] = {}
    for pair in pairs:
        name, mark, text = pair.partition("=")
        if not mark:
            raise failures.usage(f"{option} takes key=value, not {pair!r}", f"{option} KEY=VALUE")
        if name not in fields:
            message = f"{owner} has no input {name!r}{failures.hint(name, fields)}"
            raise failures.usage(message, f"Its inputs: {', '.join(fields) or 'none'}")
        given[name] = _value(name, text, fields[name], option)
    return given


def topology(manifest: Manifest, asked: str) -> str:
    """Return the requested topology, or the app's only one."""
    known = list(manifest.topologies)
    if asked in known:
        return asked
    if not asked and len(known) == 1:
        return known[0]
    what = f"has no topology {asked!r}" if asked else "has several topologies"
    message = f"{manifest.display_name} {what}; choose from {', '.join(known)}"
    raise failures.usage(message, f"--topology {known[0] if known else 'T'}")


def span_s(text: str, option: str) -> int:
    result = _SPAN.fullmatch(text)
    if result is None:
        raise failures.usage(f"{option} takes a number and s, m, h or d, not {text!r}", f"{option} 24h")
    return int(result[1]) * _UNITS_S[result[2]]


def moment(text: str, option: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """Parse a time. A span such as 2h means that long ago. A time without a zone is in UTC."""
    if _SPAN.fullmatch(text):
        return (now or datetime.datetime.now(datetime.UTC)) - datetime.timedelta(seconds=span_s(text, option))
    try:
        result = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        fix = f"{option} 2h, or {option} 2030-01-31T08:00:00Z"
        raise failures.usage(f"{option} takes a moment or how long ago, not {text!r}", fix) from error
    return result if result.tzinfo else result.replace(tzinfo=datetime.UTC)


def _value(name: str, text: str, field: Mapping[str, Any], option: str) -> Any:
    kind = field.get("type")
    if kind == "string":
        return text
    if kind == "array":
        if text.lstrip().startswith("["):
            return _json(name, text, option)
        items = field.get("items") or {}
        return [_value(name, part.strip(), items, option) for part in text.split(",") if part.strip()]
    if kind == "boolean":
        if text.lower() not in _TRUE | _FALSE:
            raise failures.usage(f"{name} takes true or false, not {text!r}", f"{option} {name}=true")
        return text.lower() in _TRUE
    if kind in ("integer", "number"):
        return _number(name, text, kind, option)
    return _json(name, text, option, or_text=kind != "object")


def _number(name: str, text: str, kind: str, option: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        wanted = "an integer" if kind == "integer" else "a number"
        raise failures.usage(f"{name} takes {wanted}, not {text!r}", f"{option} {name}={kind.upper()}") from error


def _json(name: str, text: str, option: str, *, or_text: bool = False) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        if or_text:
            return text
        raise failures.usage(f"{name}: {text!r} cannot be read: {error}", f"{option} '{name}=JSON'") from error
