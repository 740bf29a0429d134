"""Write one JSON line per event to stderr, which journald reads. Tokens and keys are never passed to it.

An event name is stable and dotted (`report.failed`), so that people can search for it and alert on it.
"""

from __future__ import annotations

import json
import sys
import time


def info(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("info", event, correlation_id, fields)


def warning(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("warning", event, correlation_id, fields)


def error(event: str, *, correlation_id: str | None = None, **fields: object) -> None:
    _write("error", event, correlation_id, fields)


def _write(level: str, event: str, correlation_id: str | None, fields: dict[str, object]) -> None:
    record: dict[str, object] = {"time_s": round(time.time(), 3), "level": level, "event": event}
    if correlation_id:
        record["correlation_id"] = correlation_id
    record.update(fields)
    sys.stderr.write(json.dumps(record, default=str) + "\n")
    sys.stderr.flush()
