"""Choose the object that a name identifies. Each domain looks up its own names and passes the matches here."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gpuaas_contract import errors

Thing = TypeVar("Thing")


def only(matches: Sequence[Thing], name: str, candidate: Callable[[Thing], str]) -> Thing | None:
    """Return the only match, or None if there is none. Raise `NameAmbiguous` if there are several."""
    if len(matches) > 1:
        candidates = [candidate(thing) for thing in matches]
        raise errors.NameAmbiguous(
            f"{name} is the name of several: {', '.join(candidates)}.",
            details={"name": name, "candidates": candidates},
            fix=f"Give one of these instead of {name}: {', '.join(candidates)}",
        )
    return matches[0] if matches else None
