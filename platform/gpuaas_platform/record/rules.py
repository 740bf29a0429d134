"""Pure: what of the record is kept, and who may go on reading it from where."""

import datetime
from collections.abc import Iterable


def is_forgotten(after: int, forgotten_to: int) -> bool:
    """Whether events behind `after` were dropped. 0 asks for whatever is kept, so it never is."""
    return 0 < after < forgotten_to


def keep_from(now: datetime.datetime, retention_s: float) -> datetime.datetime:
    return now - datetime.timedelta(seconds=retention_s)


def horizons(dropped: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The highest dropped cursor of each project, from (project, cursor) pairs."""
    highest: dict[str, int] = {}
    for project_id, cursor in dropped:
        highest[project_id] = max(cursor, highest.get(project_id, 0))
    return highest
