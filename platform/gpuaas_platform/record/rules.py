"""Pure: which events are deleted, and from which position a record can still be read."""

from collections.abc import Iterable


def is_forgotten(after: int, forgotten_to: int) -> bool:
    """Whether events behind `after` were deleted. 0 asks for all that are kept, so it is always valid."""
    return 0 < after < forgotten_to


def horizons(dropped: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The highest deleted cursor of each record, from (scope, cursor) pairs."""
    highest: dict[str, int] = {}
    for scope, cursor in dropped:
        highest[scope] = max(cursor, highest.get(scope, 0))
    return highest
