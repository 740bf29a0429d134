"""Find a JSON object that has the same key twice. `decode` checks each body of a mutation.

msgspec uses the last value and ignores the others. A program that reads the body before the platform (a proxy, a
gateway) may use the first one, and would then check another request than the one that is carried out."""

import json

import msgspec


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def repeated(raw: bytes) -> str | None:
    """Return a key that an object has more than once; None if there is none. `raw` must be valid JSON."""
    if _is_complete(raw):
        return None
    try:
        _DECODER.decode(raw.decode())
    except _Repeated as error:
        return error.key
    return None


def _is_complete(raw: bytes) -> bool:
    """Return True if msgspec drops no key. A dropped key takes its quotes with it. Only an escaped quote, `\\u0022`,
    adds any, so bodies with such escapes are left to the slower parser."""
    return b"\\u" not in raw and msgspec.json.encode(msgspec.json.decode(raw)).count(b'"') == raw.count(b'"')


def _check(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) == len(pairs):
        return
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise _Repeated(key)
        seen.add(key)


# float, because int refuses numbers of more than 4300 digits.
_DECODER = json.JSONDecoder(object_pairs_hook=_check, parse_int=float)
