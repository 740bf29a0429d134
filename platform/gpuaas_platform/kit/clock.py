"""Time comes in as an argument; this is where it comes from."""

import datetime
from collections.abc import Callable

Clock = Callable[[], datetime.datetime]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def micros(moment: datetime.datetime) -> int:
    """Microseconds since 1970, the form in which moments are stored and compared in SQL."""
    return int(moment.timestamp() * 1_000_000)


def moment(micros_since_1970: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros_since_1970)


def moment_or_none(micros_since_1970: int) -> datetime.datetime | None:
    """Columns that hold 0 for never."""
    return moment(micros_since_1970) if micros_since_1970 else None
