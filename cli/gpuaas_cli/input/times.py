"""Pure: moments and spans as people type them: 30m, 2h, 7d, 2030-01-31, 2030-01-31T08:00:00Z."""

import datetime
import re

from gpuaas_cli import failures

_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_SPAN = re.compile(r"([0-9]{1,9})([smhd])")


def span_s(text: str, option: str) -> int:
    result = _SPAN.fullmatch(text)
    if result is None:
        raise failures.usage(f"{option} takes a number and s, m, h or d, not {text!r}", f"{option} 24h")
    return int(result[1]) * _UNITS_S[result[2]]


def moment(text: str, option: str, now: datetime.datetime | None = None) -> datetime.datetime:
    """A span counts back from now. A moment without a zone is in UTC, as everything the platform prints."""
    if _SPAN.fullmatch(text):
        return (now or datetime.datetime.now(datetime.UTC)) - datetime.timedelta(seconds=span_s(text, option))
    try:
        result = datetime.datetime.fromisoformat(text)
    except ValueError as error:
        raise failures.usage(
            f"{option} takes a moment or how long ago, not {text!r}", f"{option} 2h, or {option} 2030-01-31T08:00:00Z"
        ) from error
    return result if result.tzinfo else result.replace(tzinfo=datetime.UTC)
