"""The log of a controller: JSON lines on stderr, and copies for the platform: of the lines about each operation, and of
the newest lines that belong to none.

`runner` makes an `OperationLog` per claim, `capture` collects lines into it, and `Lease` sends them with heartbeats and
with the end. Other lines are collected into the `ProcessLog`, which the runner sends with its claims. Only lines of
structlog at level info or above are sent: other libraries do not know what is secret."""

import contextlib
import datetime
import re
import sys
from collections import deque
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar
from typing import Any, Protocol

import msgspec
import structlog
from gpuaas_contract import characters, controllers
from gpuaas_contract.controllers import ControllerLogLine
from gpuaas_contract.operations import LogLevel
from gpuaas_contract.protocol import log as log_rules
from gpuaas_contract.runtime import LOG_BATCH_MAX, LOG_LINE_BYTES_MAX, ReportedLogLine

from gpuaas_sdk.controller.redaction import PROCESS_SECRETS_MAX, Redaction

_LEVELS: dict[str, LogLevel] = {"info": "info", "warning": "warning", "error": "error", "critical": "error"}
_OF_EVERY_LINE = frozenset({"app", "event", "level", "timestamp"})
_OF_OPERATION = frozenset({"operation_id", "instance_id", "correlation_id"})
"""Fields that the platform stores with the operation anyway."""
_STORED_ANYWAY = frozenset({"step.reported"})
"""Events that the platform stores as something else: the steps of an operation."""
_EVENT_CHARS_MAX, _TEXT_CHARS_MAX, _DEPTH_MAX = 200, 1_500, 8
_STORED_CHARS_MAX = 16_384
"""Longest text that waits to be sent. It is far above what is sent of it: half a secret beside the cut is left out
when the text is shortened."""
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Bytes that are not UTF-8, as Python decodes them from programs and file names. JSON cannot express them."""


class LineCollector(Protocol):
    """A log that takes copies of lines."""

    def add(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        """Add a line."""
        ...


class ProcessLog:
    """The newest lines of this process that belong to no operation: a ring of the size that the platform stores."""

    def __init__(self, redaction: Redaction | None = None) -> None:
        self.redaction = redaction or Redaction(PROCESS_SECRETS_MAX)
        """Values that any operation of this process received."""
        self.number = 0
        """Number of the newest line."""
        self._lines: deque[ControllerLogLine] = deque(maxlen=controllers.LINES_MAX)
        self._cleaned: dict[int, ControllerLogLine] = {}
        self._cleaned_changes = 0

    def add(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        """Add a line; the oldest one is left out if there are too many."""
        self.number += 1
        now = datetime.datetime.now(datetime.UTC)
        self._lines.append(
            ControllerLogLine(number=self.number, logged_at=now, level=level, event=event, fields=_plain(fields, 0))
        )

    def newest(self) -> list[ControllerLogLine]:
        """Return the lines, oldest first, without secrets and within the bounds of a report."""
        if self._cleaned_changes != self.redaction.changes:
            self._cleaned, self._cleaned_changes = {}, self.redaction.changes
        self._cleaned = {line.number: self._cleaned.get(line.number) or self._clean(line) for line in self._lines}
        return list(self._cleaned.values())

    def _clean(self, line: ControllerLogLine) -> ControllerLogLine:
        event, fields = _clean((self.redaction,), line.event, line.fields)
        limit = controllers.LINE_BYTES_MAX
        fields = _within_bound(_shortened(fields, limit // 2), limit)
        return msgspec.structs.replace(line, event=event, fields=fields)


class OperationLog:
    """The lines about one claimed operation that were not sent yet."""

    def __init__(self, of_process: Redaction | None = None, project_id: str = "") -> None:
        """`of_process` also replaces the values of this operation: a later line of the process may contain them."""
        self._lines: deque[ReportedLogLine] = deque(maxlen=log_rules.LINES_MAX)
        self._number = 0
        self._of_process = of_process or Redaction()
        self._own = Redaction()
        self._project_id = project_id

    def hide(self, value: str) -> None:
        """Replace this value in all lines that are sent from now on. See `Redaction.hide`."""
        self._of_process.hide(value, self._project_id)
        self._own.hide(value)

    def add(self, level: LogLevel, event: str, fields: dict[str, Any]) -> None:
        """Add a line. If too many wait to be sent, the oldest are left out.

        More lines of level info than the platform stores are not sent, except the one that shows it."""
        if level == "info" and self._number > log_rules.LINES_MAX:
            return
        self._number += 1
        now = datetime.datetime.now(datetime.UTC)
        own = {name: value for name, value in fields.items() if name not in _OF_OPERATION}
        self._lines.append(
            ReportedLogLine(number=self._number, logged_at=now, level=level, event=event, fields=_plain(own, 0))
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
        # The process forgets its oldest values, this log none. Together they also replace those of other operations.
        event, fields = _clean((self._own, self._of_process), line.event, line.fields)
        fields = _within_bound(_shortened(fields, _TEXT_CHARS_MAX), LOG_LINE_BYTES_MAX)
        return msgspec.structs.replace(line, event=event, fields=fields)


_CURRENT: ContextVar[LineCollector | None] = ContextVar("gpuaas_log", default=None)


@contextlib.contextmanager
def collected(into: LineCollector) -> Iterator[None]:
    """Collect the lines that the body logs."""
    before = _CURRENT.set(into)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def capture(logger: object, method: str, entry: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Copy a line to the log of the running operation, or else to that of the process. It is a processor of structlog,
    after the level was added."""
    log, level = _CURRENT.get(), _LEVELS.get(str(entry.get("level", "")))
    if log is not None and level is not None and entry.get("event") not in _STORED_ANYWAY:
        fields = {name: value for name, value in entry.items() if name not in _OF_EVERY_LINE}
        log.add(level, storable(str(entry.get("event", ""))), fields)
    return entry


def configure() -> None:
    """Write log lines as JSON to stderr, and copy them for the platform."""
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


def storable(text: str) -> str:
    """Return a text that JSON can express, shortened in the middle if it is very long."""
    return _SURROGATE.sub("\ufffd", _shortened(str.__str__(text), _STORED_CHARS_MAX))


def _clean(redactions: tuple[Redaction, ...], event: str, fields: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a line without secrets and control characters. Both are replaced before texts are shortened and measured:
    half a secret would not be found, and the replacement of a control character is longer."""
    first, *others = redactions
    shown = first.hidden(event, *others)
    return characters.clean(shown)[:_EVENT_CHARS_MAX], _without_control(first.hidden(fields, *others))


def _without_control(value: Any) -> Any:
    if isinstance(value, str):
        return characters.clean(value)
    if isinstance(value, dict):
        return {characters.clean(key): _without_control(inner) for key, inner in value.items()}
    return [_without_control(inner) for inner in value] if isinstance(value, list) else value


def _plain(value: Any, depth: int) -> Any:
    """Return a copy of a value of a log line that JSON can express. Subclasses of numbers and texts become plain."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**63 else str(int(value))  # the platform refuses larger ones
    if isinstance(value, float):
        return float(value) if value - value == 0 else str(value)  # JSON has no infinity
    if isinstance(value, dict) and depth < _DEPTH_MAX:
        return {storable(str(key)): _plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth < _DEPTH_MAX:
        return [_plain(inner, depth + 1) for inner in value]
    return storable(value if isinstance(value, str) else str(value))


def _shortened(value: Any, chars_max: int) -> Any:
    """Shorten long texts in the middle: a traceback has its cause at the end."""
    if isinstance(value, str) and len(value) > chars_max:
        half = chars_max // 2
        return f"{value[:half]} … {value[-half:]}"
    if isinstance(value, dict):
        return {key[:_EVENT_CHARS_MAX]: _shortened(inner, chars_max) for key, inner in value.items()}
    return [_shortened(inner, chars_max) for inner in value] if isinstance(value, list) else value


def _within_bound(fields: dict[str, Any], bytes_max: int) -> dict[str, Any]:
    encoded = msgspec.json.encode(fields)
    if len(encoded) <= bytes_max:
        return fields
    # As a text inside JSON, each character can take six bytes.
    return {"shortened": encoded.decode()[: bytes_max // 8]}
