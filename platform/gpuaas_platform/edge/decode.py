"""Decode requests into typed values; refuse invalid ones and name the field. `http` calls it for each request.

Decoding runs before the handler, so an invalid request writes nothing.
"""

import difflib
import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from gpuaas_contract import characters, errors
from gpuaas_contract.endpoint import AnyEndpoint
from gpuaas_contract.wire import NoBody, Query

from gpuaas_platform.edge import json_keys, shape, sizes

_Type = msgspec.inspect.Type
_PARSED = (msgspec.inspect.IntType, msgspec.inspect.FloatType, msgspec.inspect.BoolType)

BODY_MAX_BYTES = 1_048_576
SEGMENT_MAX = 255
HEADER_MAX = 255
_QUERIES_KEPT, _QUERY_KEPT_MAX = 64, 128
"""How many decoded queries are cached per endpoint, and the length in bytes up to which a query is cached."""
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1

_PLAIN_SEGMENT = re.compile(rb"[A-Za-z0-9_-]{1,%d}" % SEGMENT_MAX)
_BAD_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_LONG_NUMBER = re.compile(rb"\d{19}")
_AT = " - at `"
"""In a message of msgspec: what follows is the path of the wrong value."""
_WORD_MAX = 100
"""Longest word for which a similar known word is searched."""
_QUOTED = re.compile(r"`([^`]*)`")
_BYTE = re.compile(r"\(byte (\d+)\)")


def segment(name: str, raw: bytes) -> str:
    """Decode one part of the path: the value of the parameter `name`."""
    if _PLAIN_SEGMENT.fullmatch(raw):
        return raw.decode()
    text = _unescaped(raw, f"The path's {name}")
    if len(text) > SEGMENT_MAX:
        raise _invalid(f"`{name}` in the path has {len(text)} characters; {SEGMENT_MAX} is the most.", name)
    _check_text(text, name)
    return text


def query_reader(endpoint: AnyEndpoint) -> Callable[[bytes], tuple[Query, bool]]:
    """Return a function that decodes a query string into the endpoint's query struct and the `dry_run` flag."""
    kinds, texts = _fields(endpoint.query)
    known = [*kinds, "dry_run"] if endpoint.mutates else list(kinds)
    defaults = endpoint.query()

    def read(raw: bytes) -> tuple[Query, bool]:
        if not raw:
            return defaults, False
        return read_short(raw) if len(raw) <= _QUERY_KEPT_MAX else read_pairs(raw)

    def read_pairs(raw: bytes) -> tuple[Query, bool]:
        values = _pairs(raw, known)
        dry_run = values.pop("dry_run", "false") if endpoint.mutates else "false"
        if dry_run not in ("true", "false"):
            raise _invalid(f"`dry_run` is true or false, not {dry_run[:50]!r}.", "dry_run")
        parameters = {name: _parameter(name, text, kinds[name], name in texts) for name, text in values.items()}
        return endpoint.query(**parameters), dry_run == "true"

    # Callers send the same short queries repeatedly, such as `page_size=100`.
    read_short = functools.lru_cache(_QUERIES_KEPT)(read_pairs)
    return read


def body_reader(endpoint: AnyEndpoint) -> Callable[[bytes], object]:
    """Return a function that decodes the bytes of a body into the endpoint's request struct."""
    decoder: msgspec.json.Decoder[object] = msgspec.json.Decoder(endpoint.request)
    kind: object = endpoint.request
    bounds, secrets = sizes.bounds_of(kind), _secrets(kind)
    # A node reports what its machine printed. If the report were refused, its task would never end.
    is_of_node = endpoint.audience == "node"

    def read(raw: bytes) -> object:
        if kind is NoBody and not raw:
            return NoBody()
        if not raw:
            raise errors.InvalidRequest(f"The body is empty; {endpoint.name} needs JSON.", details={"position": 0})
        shape.check(raw)
        try:
            document = characters.replaced(raw) if is_of_node else raw
            body: object = decoder.decode(document)
            if characters.may_be_refused(document) or _LONG_NUMBER.search(document):
                _check_values(msgspec.json.decode(document), secrets=secrets)
        except msgspec.ValidationError as error:
            raise _refusal(error, kind) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _broken(raw, error) from error
        key = json_keys.repeated(raw)
        if key is not None:
            raise _invalid(f"The body has the key `{key[:100]}` more than once in one object.", key[:100])
        sizes.check(body, bounds, len(raw))
        return body

    return read


def check_content_type(value: str) -> None:
    """Refuse a body whose content type is not JSON. A body without a content type counts as JSON."""
    kind = value.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise errors.UnsupportedMediaType(f"The body is {kind}.", details={"content_type": kind[:100]})


def check_header(name: str, value: str) -> None:
    """Refuse a header value that is too long or not printable. For headers that are stored or compared."""
    if len(value) > HEADER_MAX:
        raise _invalid(f"{name} has at most {HEADER_MAX} characters.", name)
    if not (value.isascii() and value.isprintable()):
        raise _invalid(f"{name} takes printable ASCII characters only.", name)


@functools.cache
def _fields(query: type[Query]) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the type of each query parameter, and the parameters that are passed to msgspec as text: all, timestamps
    too, except numbers and flags, which are parsed."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(query)}
    parsed = {name for name, kind in kinds.items() if isinstance(_unwrapped(msgspec.inspect.type_info(kind)), _PARSED)}
    return kinds, frozenset(kinds) - parsed


def _pairs(raw: bytes, known: list[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in raw.replace(b"+", b" ").split(b"&"):
        if not pair:
            continue
        name, _, value = pair.partition(b"=")
        key = _unescaped(name, "A query parameter's name")
        if key in values:
            raise _invalid(f"The query has `{key[:100]}` more than once.", key[:100])
        if key not in known:
            raise _unknown(key, known, key, "query parameter")
        values[key] = _unescaped(value, f"The query parameter `{key}`")
        _check_text(values[key], key)
    return values


def _parameter(name: str, text: str, kind: object, is_text: bool) -> object:
    try:
        value: object = msgspec.convert(text, kind, strict=is_text)
    except msgspec.ValidationError as error:
        what, wanted = f"The query parameter `{name}`", msgspec.inspect.type_info(kind)
        if known := _words(wanted):
            raise _not_among(what, text, known, name) from error
        why = _rule(wanted) if _is_out_of_range(str(error)) else ""
        raise _invalid(f"{what}: {why or f'{error}.'}", name) from error
    _check_number(value, name)
    return value


def _unescaped(raw: bytes, what: str) -> str:
    if _BAD_ESCAPE.search(raw):
        raise errors.InvalidRequest(f"{what} has a % that is not followed by two hexadecimal digits.")
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise errors.InvalidRequest(f"{what} is not UTF-8.") from error


@functools.cache
def _secrets(kind: object) -> frozenset[str]:
    """Return the fields of a request that are secret values, so that only NUL is refused in them."""
    fields = getattr(msgspec.inspect.type_info(kind), "fields", ())
    return frozenset(field.encode_name for field in fields if (getattr(field.type, "extra", None) or {}).get("secret"))


def _check_text(text: str, name: str) -> None:
    if character := characters.refused(text):
        raise _invalid(f"`{name}` contains the control character {character}; remove it.", name)


def _check_number(value: object, name: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise _invalid(f"`{name}` is not a finite number.", name)
    if isinstance(value, int) and not _INTEGER_MIN <= value <= _INTEGER_MAX:
        raise _invalid(f"`{name}` does not fit 64 bits.", name)


def _check_values(value: object, path: str = "", *, secrets: frozenset[str] = frozenset()) -> None:
    """Refuse values that JSON allows and the platform does not: control characters and integers over 64 bits."""
    if isinstance(value, dict):
        for key, inner in value.items():
            inner_path = f"{path}.{key}".strip(".")
            _check_text(key, inner_path)
            if not (key in secrets and isinstance(inner, str) and "\0" not in inner):
                _check_values(inner, inner_path)
    elif isinstance(value, list):
        for position, inner in enumerate(value):
            _check_values(inner, f"{path}[{position}]")
    elif isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, int):
        _check_number(value, path)


def _broken(raw: bytes, error: Exception) -> errors.InvalidRequest:
    """Return the error for a body that is not JSON, with the line and column of the flaw."""
    try:
        json.loads(raw, parse_int=float)  # int refuses numbers of more than 4300 digits
        where, position = "", 0
    except json.JSONDecodeError as broken:
        where, position = f" in line {broken.lineno}, column {broken.colno}", broken.pos
    except UnicodeDecodeError as broken:
        text = f"The body is not UTF-8 (byte {broken.start})."
        return errors.InvalidRequest(text, details={"position": broken.start})
    why = _BYTE.sub("", str(error)).strip().removeprefix("JSON is malformed: ")
    return errors.InvalidRequest(f"The body is not JSON: {why}{where}.", details={"position": position})


def _refusal(error: msgspec.ValidationError, kind: object) -> errors.ValidationFailed:
    """Turn msgspec's error into ours: add the field as data and, for a probable typo, the word that was meant."""
    text, path = _split(str(error))
    quoted = _QUOTED.findall(text)
    if text.startswith("Object contains unknown field") and quoted:
        known = [field.encode_name for field in getattr(_unwrapped(_kind_at(kind, path)), "fields", ())]
        return _unknown(quoted[0], known, f"{path}.{quoted[0]}".strip("."), "field")
    if text.startswith("Object missing required field") and quoted:
        field = f"{path}.{quoted[0]}".strip(".")
        return _invalid(f"The field `{field}` is missing.", field)
    if text.startswith("Invalid enum value"):
        word = text.removeprefix("Invalid enum value").strip(" '")
        return _not_among(f"The field `{path}`", word, _words(_kind_at(kind, path)), path or "$")
    where = f"The field `{path}`: " if path else ""
    why = _rule(_kind_at(kind, path)) if _is_out_of_range(text) else f"{text}."
    return _invalid(f"{where}{why or text}", path or "$")


def _split(message: str) -> tuple[str, str]:
    """Return the text of msgspec's message and the path in it. No regular expression: the body controls the message,
    and with many signs of a path in it, a search would take minutes."""
    text, sign, path = message.rpartition(_AT)
    if not sign:
        return message, ""
    return text, path.removesuffix("`").removeprefix("key in ").removeprefix("$").strip(".")


def _invalid(message: str, field: str, **details: object) -> errors.ValidationFailed:
    return errors.ValidationFailed(characters.clean(message), details={"field": characters.clean(field), **details})


def _unknown(name: str, known: list[str], field: str, what: str) -> errors.ValidationFailed:
    close = _similar(name, known)
    hint = f"did you mean `{close[0]}`?" if close else f"known: {', '.join(known) or 'none'}."
    return _invalid(f"unknown {what} `{field[:200]}`; {hint}", field[:200], known=known)


def _not_among(what: str, word: str, known: list[str], field: str) -> errors.ValidationFailed:
    """Return the error for a word that is not one of the allowed words `known`."""
    close = _similar(word, known)
    hint = f"did you mean `{close[0]}`? " if close else ""
    return _invalid(f"{what} does not take `{word[:100]}`; {hint}Allowed: {', '.join(known)}.", field, known=known)


def _similar(word: str, known: list[str]) -> list[str]:
    return difflib.get_close_matches(word, known, n=1, cutoff=0.6) if len(word) <= _WORD_MAX else []


def _is_out_of_range(text: str) -> bool:
    """Return whether msgspec's message is about a length, range or pattern. The contract describes these better."""
    return any(sign in text for sign in (" matching regex", "of length", ">=", "<="))


def _words(kind: _Type | None) -> list[str]:
    """Return the words that the contract allows as the value; empty if it does not list any."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _words(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        return [word for part in kind.types for word in _words(part)]
    return [str(value) for value in kind.values] if isinstance(kind, msgspec.inspect.LiteralType) else []


def _rule(kind: _Type | None) -> str:
    """Return the contract's description of a value; empty if there is none."""
    extra = kind.extra_json_schema if isinstance(kind, msgspec.inspect.Metadata) else None
    return str((extra or {}).get("description", ""))


def _kind_at(kind: object, path: str) -> _Type | None:
    """Return the type that the contract gives the value at `path`; None if it gives none."""
    reached: _Type | None = msgspec.inspect.type_info(kind)
    for name in re.findall(r"\[\.\.\.\]|\[\d+\]|[^.\[\]]+", path):
        holder = _unwrapped(reached)
        if isinstance(holder, msgspec.inspect.StructType):
            reached = next((field.type for field in holder.fields if field.encode_name == name), None)
        elif isinstance(holder, msgspec.inspect.DictType):
            reached = holder.value_type
        else:
            reached = getattr(holder, "item_type", None)
    return reached


def _unwrapped(kind: _Type | None) -> _Type | None:
    """Return the type without its metadata; for a union, its first part that has fields or items, else None."""
    if isinstance(kind, msgspec.inspect.Metadata):
        return _unwrapped(kind.type)
    if isinstance(kind, msgspec.inspect.UnionType):
        structured = (part for part in kind.types if hasattr(part, "fields") or hasattr(part, "item_type"))
        return next(structured, None)
    return kind
