"""Write log lines as JSON to stderr. Lines are collected and written once per turn of the event loop: under load, one
system call writes the lines of many requests. `main` configures it."""

import asyncio
import atexit
import contextvars
import logging
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO

import msgspec
import structlog
from structlog.typing import EventDict

CONTEXT: contextvars.ContextVar[Callable[[], dict[str, str]]] = contextvars.ContextVar("log fields", default=dict)
"""Returns the fields that the log lines of the current request get by default. Called for each line."""
_write_info: Callable[[bytes], None] | None = None
"""Writes encoded lines of level info; None before `configure` was called."""
_encode = msgspec.json.Encoder(enc_hook=repr).encode


def configure(level: str) -> None:
    global _write_info
    lines, lowest = Lines(sys.stderr.buffer), logging.getLevelNamesMapping()[level.upper()]
    atexit.register(lines.flush)
    _write_info = lines.msg if lowest <= logging.INFO else lambda _: None
    structlog.configure(
        processors=[
            _with_context,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=lambda line, **_: _encode(line)),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=lambda *_: lines,
        cache_logger_on_first_use=True,
    )


def info(line: msgspec.Struct) -> None:
    """Log a line that already has all fields, with `level` and `timestamp`. Skips structlog, which is slower."""
    if _write_info is None:
        structlog.get_logger().info(**msgspec.structs.asdict(line))
    else:
        _write_info(_encode(line))


class Lines:
    """Collects log lines until the next turn of the event loop. In a thread without a loop it writes at once."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._waiting: list[bytes] = []
        self._lock = threading.Lock()

    def msg(self, line: bytes) -> None:
        with self._lock:
            self._waiting.append(line)
            is_first = len(self._waiting) == 1
        if not is_first:
            return
        try:
            asyncio.get_running_loop().call_soon(self.flush)
        except RuntimeError:
            self.flush()

    debug = info = warning = error = critical = exception = msg

    def flush(self) -> None:
        with self._lock:
            lines, self._waiting = self._waiting, []
        if lines:
            self._file.write(b"\n".join(lines) + b"\n")
            self._file.flush()


def _with_context(_: object, __: str, line: EventDict) -> EventDict:
    return line if "correlation_id" in line else {**CONTEXT.get()(), **line}
