"""Choose the thing that a name stands for. Each domain looks its own names up and asks here whether one is left."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gpuaas_contract import errors

Thing = TypeVar("Thing")


def only(found: Sequence[Thing], name: str, candidate: Callable[[Thing], str]) -> Thing | None:
    """The only thing with this name; None where there is none, refused where there are several."""
    if len(found) > 1:
        candidates = [candidate(thing) for thing in found]
        raise errors.NameAmbiguous(
            f"{name} is the name of several: {', '.join(candidates)}.", details={"name": name, "candidates": candidates}
        )
    return found[0] if found else None
