"""The source of the current time, and conversions. Other code gets the time as an argument."""

import datetime
from collections.abc import Callable

Clock = Callable[[], datetime.datetime]
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def micros(moment: datetime.datetime) -> int:
    """Return the microseconds since 1970. SQL stores and compares times in this form."""
    return int(moment.timestamp() * 1_000_000)


def moment(micros_since_1970: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(microseconds=micros_since_1970)


def moment_or_none(micros_since_1970: int) -> datetime.datetime | None:
    """Return the time, or None for 0. For columns in which 0 means "never"."""
    return moment(micros_since_1970) if micros_since_1970 else None
