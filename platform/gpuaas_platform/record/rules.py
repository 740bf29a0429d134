"""Pure: what of the record is kept, and who may go on reading it from where."""

import datetime
from collections.abc import Iterable


def is_forgotten(after: int, forgotten_to: int) -> bool:
    """Whether events behind `after` were dropped. 0 asks for whatever is kept, so it never is."""
    return 0 < after < forgotten_to


def keep_from(now: datetime.datetime, retention_s: float) -> datetime.datetime:
    return now - datetime.timedelta(seconds=retention_s)


def horizons(dropped: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The highest dropped cursor of each record, from (scope, cursor) pairs."""
    highest: dict[str, int] = {}
    for scope, cursor in dropped:
        highest[scope] = max(cursor, highest.get(scope, 0))
    return highest
