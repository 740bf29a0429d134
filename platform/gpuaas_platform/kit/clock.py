"""Time comes in as an argument; this is where it comes from."""

import datetime
from collections.abc import Callable

Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def micros(moment: datetime.datetime) -> int:
    """Microseconds since 1970, the form in which moments are stored and compared in SQL."""
    return int(moment.timestamp() * 1_000_000)
