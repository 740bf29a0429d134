"""Limits on the structure of a JSON body: how deep it is nested, and how many parts it has. `decode` checks each body
before it decodes it.

The caller may be unknown, so the time of each check must grow with the size of the body only, and no faster. So the
patterns are possessive (`++`, `*+`): they never try the same bytes again. They also match a string without an end and
the end of the body, so that a search does not fail and start again at the next byte."""

import itertools
import re

from gpuaas_contract import errors

DEPTH_MAX = 64
CONTAINERS_MAX = 30_000
"""Most objects and lists in a body."""
PARTS_MAX = 100_000
"""Most commas between the values of a body."""
_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_BRACKETS = re.compile(rf'(?:[^"\[\]{{}}]++|{_STRING})*+([\[\]{{}}]|\Z)'.encode(), re.DOTALL)
_COMMAS = re.compile(rf'(?:[^",]++|{_STRING})*+(,|\Z)'.encode(), re.DOTALL)


def check(raw: bytes) -> None:
    """Refuse a body over a limit. Most bodies have too few brackets and commas for that, also inside of strings."""
    if raw.count(b"[") + raw.count(b"{") > DEPTH_MAX:
        _check_brackets(raw)
    if raw.count(b",") > PARTS_MAX:
        _check_commas(raw)


def _check_brackets(raw: bytes) -> None:
    depth = containers = 0
    for match in _BRACKETS.finditer(raw):
        if match[1] in (b"[", b"{"):
            depth, containers = depth + 1, containers + 1
            if depth > DEPTH_MAX:
                raise _refused(f"is nested deeper than {DEPTH_MAX} levels", match.start(1))
            if containers > CONTAINERS_MAX:
                raise _refused(f"has more than {CONTAINERS_MAX} objects and lists", match.start(1))
        elif match[1]:
            depth -= 1


def _check_commas(raw: bytes) -> None:
    commas = (match.start(1) for match in _COMMAS.finditer(raw) if match[1])
    position = next(itertools.islice(commas, PARTS_MAX, None), None)
    if position is not None:
        raise _refused(f"has more than {PARTS_MAX} values", position)


def _refused(what: str, position: int) -> errors.InvalidRequest:
    return errors.InvalidRequest(f"The body {what} (byte {position}).", details={"position": position})
