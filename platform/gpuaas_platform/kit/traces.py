"""W3C trace context, and spans of it. `edge` makes a span for each request, `nodes` one for each task of an agent.

The exporter is optional; without it, no span is made."""

import datetime
import random
import re
from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")


class Trace(msgspec.Struct, frozen=True, gc=False):
    """The ids of this request in a W3C trace."""

    trace_id: str
    parent_id: str
    """Span id of the caller; empty if the trace starts with this request."""
    span_id: str
    flags: str
    header: str
    """All of it as W3C writes it. It is sent and stored."""


def trace_of(traceparent: str) -> Trace:
    """Continue the caller's trace if the header is valid, else start a trace.

    The ids need no secure random source. An id of zeros only, which W3C forbids, occurs once in 2^64 cases.
    """
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match and _is_valid(*match.groups()):
        return _trace(match[2], match[3], f"{random.getrandbits(64):016x}", match[4])
    digits = f"{random.getrandbits(192):048x}"
    return _trace(digits[:32], "", digits[32:], "01")


def _trace(trace_id: str, parent_id: str, span_id: str, flags: str) -> Trace:
    return Trace(trace_id, parent_id, span_id, flags, f"00-{trace_id}-{span_id}-{flags}")


def trace_id_of(traceparent: str) -> str:
    """Return the trace id of a W3C header that the platform made; empty if there is none."""
    return traceparent.split("-")[1] if traceparent else ""


def _is_valid(version: str, trace_id: str, span_id: str, _: str, more: str | None) -> bool:
    known_form = version != "ff" and not (version == "00" and more)
    return known_form and trace_id.strip("0") != "" and span_id.strip("0") != ""


class Span(msgspec.Struct, frozen=True, gc=False):
    """A span that has ended."""

    name: str
    trace: Trace
    kind: Literal["server", "consumer"]
    """`server`: a request. `consumer`: work that a request queued."""
    started_at: datetime.datetime
    ended_at: datetime.datetime
    failed: bool
    attributes: Mapping[str, str | int | float]
    """Names and ids only; never a header or a body, because these can contain secrets."""


class Spans(Protocol):
    def export(self, span: Span) -> None: ...

    def close(self) -> None: ...
