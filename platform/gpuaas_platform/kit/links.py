"""Links to the log and trace systems of the operator: URL templates with placeholders, checked at the start."""

import datetime
import re
import string
from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

TIMES = frozenset({"start_ms", "end_ms"})
"""Placeholders that every template may have: the time range of what was found, in milliseconds since 1970."""
_MARGIN = datetime.timedelta(minutes=5)
# Other characters could end a string in the query language of the log system and change what the link searches for.
_SAFE = re.compile(r"[A-Za-z0-9._:@/+=,-]+")


@dataclass(frozen=True)
class Range:
    """The time range of what a link shows."""

    start: datetime.datetime
    end: datetime.datetime


def check(template: str, needed: str) -> str:
    """Return what is wrong with a template; empty if nothing is. It must have the placeholder `needed`."""
    known = {needed, *TIMES}
    hint = (
        f"Known placeholders: {', '.join(f'{{{name}}}' for name in sorted(known))}; write other braces as %7B and %7D"
    )
    try:
        fields = [part[1:] for part in string.Formatter().parse(template) if part[1] is not None]
        url = urlsplit(template)
    except ValueError as error:
        return f"{error}. {hint}"
    if any(name not in known or spec or conversion for name, spec, conversion in fields) or "{{" in template:
        return f"it has an unknown placeholder. {hint}"
    if needed not in {name for name, _, _ in fields}:
        return f"it has no {{{needed}}}"
    if url.scheme not in ("http", "https") or not url.hostname or "{" in url.netloc:
        return "it is not an http:// or https:// URL with a fixed host"
    return (
        ""
        if template.isascii() and template.isprintable() and " " not in template
        else "it has a space or a character that a URL cannot have"
    )


def url(template: str, name: str, value: str, times: Range) -> str:
    """Return the URL for a value; empty if there is no template, or the value could change the query of the link."""
    if not template or not _SAFE.fullmatch(value):
        return ""
    values = {
        name: quote(value, safe=""),
        "start_ms": str(_milliseconds(times.start - _MARGIN)),
        "end_ms": str(_milliseconds(times.end + _MARGIN)),
    }
    return template.format_map(values)


def range_of(moments: Collection[datetime.datetime], now: datetime.datetime) -> Range:
    return Range(min(moments, default=now), max(moments, default=now))


def _milliseconds(moment: datetime.datetime) -> int:
    return int(moment.timestamp() * 1000)
