"""The log of a controller: JSON lines on stderr, and a copy of the lines about each operation for the platform.

`runner` makes an `OperationLog` per claim, `capture` collects lines into it, and `Lease` sends them with heartbeats and
with the end. Only lines of structlog at level info or above are sent: other libraries do not know what is secret."""

import contextlib
import datetime
import json
import sys
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any

import msgspec
import structlog
from gpuaas_contract.operations import LogLevel
from gpuaas_contract.protocol import log as log_rules
from gpuaas_contract.runtime import LOG_BATCH_MAX, LOG_LINE_BYTES_MAX, ReportedLogLine

_LEVELS: dict[str, LogLevel] = {"info": "info", "warning": "warning", "error": "error", "critical": "error"}
_KNOWN = frozenset({"app", "operation_id", "instance_id", "correlation_id", "event", "level", "timestamp"})
"""Fields that the platform stores anyway, or that every line has."""
_STORED_ANYWAY = frozenset({"step.reported"})
"""Events that the platform stores as something else: the steps of an operation."""
_EVENT_CHARS_MAX, _TEXT_CHARS_MAX, _DEPTH_MAX = 200, 1_500, 8
_SECRET_CHARS_MIN = 4
"""Shorter texts occur in many lines by chance."""
REDACTED = "[secret]"


class OperationLog:
    """The lines about one claimed operation that were not sent yet."""

    def __init__(self) -> None:
        self._lines: deque[ReportedLogLine] = deque(maxlen=log_rules.LINES_MAX)
        self._number = 0
        self._secrets: set[str] = set()

    def hide(self, value: str) -> None:
        """Replace this value, and each long line of it, in all lines that are sent from now on. Programs also print it
        with escapes for quotation marks and line breaks: in a traceback, in JSON."""
        parts = {value.strip(), *(line.strip() for line in value.splitlines())}
        parts |= {escaped[1:-1] for part in parts for escaped in (repr(part), json.dumps(part))}
        self._secrets |= {part for part in parts if len(part) >= _SECRET_CHARS_MIN}

    def add(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        """Add a line. If too many wait to be sent, the oldest are left out.

        More lines of level info than the platform stores are not sent, except the one that shows it."""
        if level == "info" and self._number > log_rules.LINES_MAX:
            return
        self._number += 1
        now = datetime.datetime.now(datetime.UTC)
        self._lines.append(
            ReportedLogLine(number=self._number, logged_at=now, level=level, event=event, fields=_plain(fields, 0))
        )

    def batch(self) -> list[ReportedLogLine]:
        """Return the oldest lines that were not sent, without secrets and within the bounds of a request."""
        return [self._clean(line) for line in list(self._lines)[:LOG_BATCH_MAX]]

    def sent(self, batch: list[ReportedLogLine]) -> None:
        """Forget the lines of a batch that the platform has stored."""
        while batch and self._lines and self._lines[0].number <= batch[-1].number:
            self._lines.popleft()

    @property
    def is_long(self) -> bool:
        """Whether the lines do not fit into one request."""
        return len(self._lines) > LOG_BATCH_MAX

    def _clean(self, line: ReportedLogLine) -> ReportedLogLine:
        # Secrets are replaced before texts are shortened: half a secret would not be found.
        event, fields = self._hidden(line.event)[:_EVENT_CHARS_MAX], _shortened(self._hidden(line.fields))
        return msgspec.structs.replace(line, event=event, fields=_within_bound(fields))

    def _hidden(self, value: Any) -> Any:
        if isinstance(value, str):
            for secret in sorted(self._secrets, key=len, reverse=True):
                value = value.replace(secret, REDACTED)
            return value
        if isinstance(value, dict):
            return {self._hidden(key): self._hidden(inner) for key, inner in value.items()}
        return [self._hidden(inner) for inner in value] if isinstance(value, list) else value


_CURRENT: ContextVar[OperationLog | None] = ContextVar("gpuaas_operation_log", default=None)


@contextlib.contextmanager
def collected(into: OperationLog) -> Iterator[None]:
    """Collect the lines that the body logs."""
    before = _CURRENT.set(into)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def capture(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Copy a line to the log of the running operation. It is a processor of structlog, after the level was added."""
    log, level = _CURRENT.get(), _LEVELS.get(str(entry.get("level", "")))
    if log is not None and level is not None and entry.get("event") not in _STORED_ANYWAY:
        fields = {name: value for name, value in entry.items() if name not in _KNOWN}
        log.add(level, str(entry.get("event", "")), fields)
    return entry


def configure() -> None:
    """Write log lines as JSON to stderr, and copy those about operations for the platform."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            capture,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _plain(value: Any, depth: int) -> Any:
    """Return a copy of a value of a log line that JSON can express."""
    if value is None or isinstance(value, bool | int | float | str):
        return value if not isinstance(value, float) or value - value == 0 else str(value)  # JSON has no infinity
    if isinstance(value, dict) and depth < _DEPTH_MAX:
        return {str(key): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEPTH_MAX:
        return [_plain(inner, depth + 1) for inner in value]
    return str(value)


def _shortened(value: Any) -> Any:
    """Shorten long texts in the middle: a traceback has its cause at the end."""
    if isinstance(value, str) and len(value) > _TEXT_CHARS_MAX:
        half = _TEXT_CHARS_MAX // 2
        return f"{value[:half]} … {value[-half:]}"
    if isinstance(value, dict):
        return {key[:_EVENT_CHARS_MAX]: _shortened(inner) for key, inner in value.items()}
    return [_shortened(inner) for inner in value] if isinstance(value, list) else value


def _within_bound(fields: dict[str, Any]) -> dict[str, Any]:
    encoded = msgspec.json.encode(fields)
    if len(encoded) <= LOG_LINE_BYTES_MAX:
        return fields
    # As a text inside JSON, each character can take six bytes.
    return {"shortened": encoded.decode()[: LOG_LINE_BYTES_MAX // 8]}
