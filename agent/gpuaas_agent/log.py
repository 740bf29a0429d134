"""One JSON line per event on stderr, where journald picks it up. Never given a token or a key."""

from __future__ import annotations

import json
import sys
import time


def event(message: str, *, level: str = "info", correlation_id: str | None = None, **fields: object) -> None:
    record: dict[str, object] = {"time_s": round(time.time(), 3), "level": level, "event": message}
    if correlation_id:
        record["correlation_id"] = correlation_id
    record.update(fields)
    sys.stderr.write(json.dumps(record, default=str) + "\n")
    sys.stderr.flush()
