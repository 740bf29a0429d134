"""Pure: match entries of a list, exact or ending in `*`, with values and other entries. Also used for versions."""

import bisect
from collections.abc import Iterable


def covers(wide: str, narrow: str) -> bool:
    """Return whether `wide` matches everything that `narrow` (a value or another entry) matches."""
    return narrow.startswith(wide[:-1]) if wide.endswith("*") else narrow == wide


def naming(entries: Iterable[str], value: str) -> str | None:
    """Return the first entry that matches the value."""
    return next((entry for entry in entries if covers(entry, value)), None)


class Entries:
    """A list of entries, prepared for many lookups. `cover` and `any_inside` do not compare every entry."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.sorted = sorted(set(entries))
        self._exact = frozenset(self.sorted)
        self._prefixes = tuple(entry[:-1] for entry in self.sorted if entry.endswith("*"))

    def cover(self, entry: str) -> bool:
        return entry in self._exact or entry.startswith(self._prefixes)

    def any_inside(self, entry: str) -> bool:
        """Return whether `entry` covers an entry of this list."""
        if not entry.endswith("*"):
            return entry in self._exact
        prefix = entry[:-1]
        first = bisect.bisect_left(self.sorted, prefix)
        return first < len(self.sorted) and self.sorted[first].startswith(prefix)

    def overlap(self, entry: str) -> bool:
        return self.cover(entry) or self.any_inside(entry)

    def intersect(self, other: "Entries") -> list[str]:
        """Return what both lists allow: of two entries that overlap, the narrower one."""
        shared = {entry for entry in self.sorted if other.cover(entry)}
        return sorted(shared | {entry for entry in other.sorted if self.cover(entry)})
