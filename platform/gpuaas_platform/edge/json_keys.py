"""Find a JSON object that has the same key twice. `decode` checks each body of a mutation.

msgspec uses the last value and ignores the others. A program that reads the body before the platform (a proxy, a
gateway) may use the first one, and would then check another request than the one that is carried out."""

import json


class _Repeated(Exception):
    def __init__(self, key: str) -> None:
        self.key = key


def repeated(raw: bytes) -> str | None:
    """Return a key that an object has more than once; None if there is none. `raw` must be valid JSON."""
    try:
        _DECODER.decode(raw.decode())
    except _Repeated as error:
        return error.key
    return None


def _check(pairs: list[tuple[str, object]]) -> None:
    if len(dict(pairs)) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _Repeated(next(key for key in keys if keys.count(key) > 1))


# The parser is written in C and calls `_check` once per object.
_DECODER = json.JSONDecoder(object_pairs_hook=_check)
