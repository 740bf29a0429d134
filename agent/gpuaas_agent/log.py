"""Write one JSON line per event to stderr, which journald reads. Tokens and keys are never passed to it.

An event name is stable and dotted (`report.failed`), so that people can search for it and alert on it. Every line that
is written while a task runs has the correlation id of the task.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import sys
import time
from collections.abc import Iterator

# A context variable, because tasks run in several threads.
_CORRELATION_ID: contextvars.ContextVar[str] = contextvars.ContextVar("correlation_id", default="")


@contextlib.contextmanager
def about(correlation_id: str) -> Iterator[None]:
    """Add this correlation id to each line that the body writes."""
    before = _CORRELATION_ID.set(correlation_id)
    try:
        yield
    finally:
        _CORRELATION_ID.reset(before)


def info(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("info", event, correlation_id, fields)


def warning(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("warning", event, correlation_id, fields)


def error(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("error", event, correlation_id, fields)


def _write(level: str, event: str, correlation_id: str | None, fields: dict[str, object]) -> None:
    record: dict[str, object] = {"time_s": round(time.time(), 3), "level": level, "event": event}
    if correlation_id or _CORRELATION_ID.get():
        record["correlation_id"] = correlation_id or _CORRELATION_ID.get()
    record.update(fields)
    sys.stderr.write(json.dumps(record, default=str) + "\n")
    sys.stderr.flush()
