"""The record of finished tasks: one file per task, on disk before its result is posted. Used by `tasks.Worker`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from gpuaas_agent import files, log

KEPT_AFTER_EXPIRY_S = 7 * 24 * 3600


@dataclasses.dataclass(frozen=True)
class Entry:
    task_id: str
    correlation_id: str
    expires_at_s: float
    outcome: dict[str, Any]
    posted: bool
    """Whether the platform has the result. If not, it is posted again at the next start."""


class Journal:
    def __init__(self, directory: Path) -> None:
        files.make_directory(directory, 0o700)
        self._directory = directory

    def find(self, task_id: str) -> Entry | None:
        content = files.read(self._path(task_id))
        return None if content is None else _entry(content)

    def record(self, entry: Entry) -> None:
        files.write_atomic(self._path(entry.task_id), json.dumps(dataclasses.asdict(entry)).encode(), 0o600)

    def mark_posted(self, entry: Entry) -> None:
        self.record(dataclasses.replace(entry, posted=True))

    def unposted(self) -> list[Entry]:
        return [entry for entry in self._entries() if not entry.posted]

    def forget_old(self, now_s: float) -> None:
        for entry in self._entries():
            if now_s > entry.expires_at_s + KEPT_AFTER_EXPIRY_S:
                files.remove(self._path(entry.task_id))
                log.info("journal.entry_removed", task_id=entry.task_id)

    def _entries(self) -> list[Entry]:
        return [_entry(path.read_bytes()) for path in sorted(self._directory.glob("[a-z]*.json"))]

    def _path(self, task_id: str) -> Path:
        return self._directory / (task_id + ".json")


def _entry(content: bytes) -> Entry:
    """Decode an entry. Ignore unknown fields: a newer agent may have written them before a rollback."""
    raw = json.loads(content)
    return Entry(**{field.name: raw[field.name] for field in dataclasses.fields(Entry)})
