"""The ledger of a simulated machine: what each command changed there. A step that is safe to repeat has its effects
once, however often it runs. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

Content = Mapping[str, str | bytes | int]
"""What a machine has, by the name under which the ledger shows it: `file PATH`, `unit NAME`, `start NAME`, …"""


class Effect(NamedTuple):
    """One change of a machine by one command."""

    what: str
    """What changed: the name in `Content`."""
    argv: tuple[str, ...]
    """The command that changed it."""


def changes(before: Content, after: Content, argv: tuple[str, ...]) -> list[Effect]:
    """Return the effects of a command on the content of a machine."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [Effect(name, argv) for name in names]


def doubled(undisturbed: Iterable[str], disturbed: Iterable[str]) -> list[str]:
    """Return what changed more often than in the undisturbed run."""
    return sorted((Counter(disturbed) - Counter(undisturbed)).keys())
